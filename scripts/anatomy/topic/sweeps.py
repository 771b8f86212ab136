"""Series of small trainings: theory compared with measurement, optimisers by learning rates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from scripts.anatomy.topic import baselines, measures, settings, theory
from scripts.anatomy.topic.corpora import Corpus


@dataclass(frozen=True)
class Point:
    """One point of a grid, and the training to run there.

    Attributes:
        value: The varied setting.
        measure: "value" (block entries of W_V) or "attention" (R).
        corpus: Documents of the theorems at this setting.
        variant: The training.
        setting: The theorems' setting.
    """

    value: float
    measure: Literal["value", "attention"]
    corpus: settings.ExactCorpusSettings
    variant: settings.TopicVariantSettings
    setting: theory.TheorySetting


def points(grid: settings.GridSettings) -> Iterator[Point]:
    """Yield the trainings of a grid; no attention at tau = 1, where R is undefined."""
    for value in grid.values:
        fixed = grid.model_dump(include={"tau", "topics", "words_per_topic", "l2", "mask_prob"})
        point = fixed | {grid.varies: type(fixed[grid.varies])(value)}
        setting = theory.TheorySetting(
            point["topics"], point["words_per_topic"], point["tau"], p_m=point["mask_prob"]
        )
        corpus = settings.ExactCorpusSettings(
            kind="exact",
            topics=point["topics"],
            words=point["topics"] * point["words_per_topic"],
            tau=point["tau"],
            validation=200,
        )
        for measure in grid.measures:
            if measure == "attention" and point["tau"] == 1:
                continue
            variant = _value_variant(setting, point["l2"])
            if measure == "attention":
                variant = ATTENTION
            masking = settings.TopicMaskingSettings(mask_prob=point["mask_prob"])
            update = {"masking": masking, "steps": grid.steps}
            yield Point(value, measure, corpus, variant.model_copy(update=update), setting)


# Both schedules end at a rate of 0, so that the noise of the last steps does not count.
ATTENTION = settings.TopicVariantSettings(
    model=settings.CompactModelSettings(value="block", attention="trained"),
    loss="squared",
    learning_rate=0.01,
    schedule="linear",
    checkpoints=1,
)


def _value_variant(setting: theory.TheorySetting, l2: float) -> settings.TopicVariantSettings:
    """Return W_V by SGD from near zero, which without penalty finds the minimum-norm optimum.

    The largest curvature of the squared loss is 2 (p_0^2 + c^2/(T v)), along the mean document.
    SGD is stable at rates below 2 over that; the rate used is 0.6 of this bound.
    """
    half_curvature = setting.p_mask**2 + setting.c**2 / setting.n_words
    return settings.TopicVariantSettings(
        loss="squared",
        l2=l2,
        optimiser="sgd",
        learning_rate=0.6 / half_curvature,
        init=settings.InitSettings(scale=1e-4),
        schedule="linear",
        checkpoints=1,
    )


def compare(
    point: Point, view: measures.TokenView, corpus: Corpus, rng: np.random.Generator
) -> list[dict[str, float | str]]:
    """Return rows with a trained model's values and two predictions of them.

    `theorem` is Theorem 2 or 3, for infinitely long documents; `finite` the optimum for documents
    of the corpus's length, derived here for W_V and computed on the corpus for R.
    """
    setting = point.setting
    if point.measure == "attention":
        blocks = theory.optimal_value(setting)
        p_m = point.variant.masking.mask_prob
        pairs = {
            "R": (
                theory.optimal_attention_ratio(setting),
                baselines.best_attention_ratio(
                    corpus.train, corpus.membership, blocks, rng, p_m=p_m
                ),
                measures.attention_ratio(view.scores, corpus.membership),
            )
        }
    else:
        l2, length = point.variant.l2, point.corpus.max_length
        means = measures.block_means(measures.words(view.value), corpus.membership)
        trained = theory.ValueBlocks(
            means["same_with_diagonal"], means["different"], measures.mask_column(view.value)
        )
        sources = (
            theory.optimal_value(setting, l2=l2),
            theory.finite_value(setting, length=length, l2=l2),
            trained,
        )
        pairs = {
            "same topic": tuple(blocks.same for blocks in sources),
            "different topic": tuple(blocks.different for blocks in sources),
            "MASK": tuple(blocks.mask_column for blocks in sources),
        }
    return [
        {"value": point.value, "quantity": name}
        | dict(zip(("theorem", "finite", "measured"), values, strict=True))
        for name, values in pairs.items()
    ]


def errors(table: pd.DataFrame) -> dict[str, list[float]]:
    """Return the largest differences of trained models from each prediction, a value per seed.

    `value_*`: of entries of W_V, as a share of the predicted same-topic entry at the same point;
    `attention_*`: of R, relative.
    """
    largest = {}
    ratio = table["quantity"] == "R"
    for prediction in ("theorem", "finite"):
        same = table[table["quantity"] == "same topic"].groupby("value")[prediction].first()
        scale = table[prediction].where(ratio, table["value"].map(same))
        errors = ((table["measured"] - table[prediction]) / scale).abs()
        errors = errors.fillna(np.inf)  # a diverged training is infinitely wrong
        for name, rows in (("value", ~ratio), ("attention", ratio)):
            if rows.any():
                worst = errors[rows].groupby(table["seed"]).max()
                largest[f"{name}_{prediction}"] = worst.tolist()
    return largest


def sweep_variants(
    sweep: settings.SweepSettings,
) -> Iterator[tuple[dict[str, str | float], settings.TopicVariantSettings]]:
    """Yield trainings of W_K, W_Q and W_V together for every optimiser, rate and loss."""
    rates = [("adam", rate) for rate in sweep.adam] + [("sgd", rate) for rate in sweep.sgd]
    for optimiser, rate in rates:
        for loss in sweep.losses:
            yield (
                {"optimiser": optimiser, "learning_rate": rate, "loss": loss},
                settings.TopicVariantSettings(
                    model=settings.CompactModelSettings(attention="trained"),
                    loss=loss,
                    optimiser=optimiser,
                    learning_rate=rate,
                    steps=sweep.steps,
                    checkpoints=1,
                ),
            )


def worst_cells(table: pd.DataFrame) -> dict[str, list[float]]:
    """Return, per seed, the weakest structure in any cell of a sweep: W_V and attention."""
    weakest = table.fillna(-np.inf).groupby("seed")[["separated", "ratio"]].min()
    return {name: weakest[name].tolist() for name in weakest}


def sweep_row(
    view: measures.TokenView, corpus: Corpus, measurement: settings.TopicMeasurementSettings
) -> dict[str, float]:
    """Return the contrast and separation of the blocks of W_V, and attention by pair class."""
    blocks = measures.block_means(measures.words(view.value), corpus.membership)
    attention = measures.held_out_attention(view, corpus, measurement)
    return {name: blocks[name] for name in ("contrast", "separated")} | attention
