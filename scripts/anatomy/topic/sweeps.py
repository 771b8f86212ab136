"""Series of small trainings: theory against measurement, and optimisers by learning rates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from scripts.anatomy.topic import baselines, measures, settings, theory
from scripts.anatomy.topic.corpora import Corpus


@dataclass(frozen=True)
class Point:
    """One setting of a grid, and what to train there.

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
    setting: theory.Setting


def points(grid: settings.GridSettings) -> Iterator[Point]:
    """The trainings of a grid; R is not defined for documents of one topic, so tau 1 has none."""
    for value in grid.values:
        fixed = grid.model_dump(include={"tau", "topics", "words_per_topic", "l2", "mask_prob"})
        at = fixed | {grid.varies: type(fixed[grid.varies])(value)}
        setting = theory.Setting(
            at["topics"], at["words_per_topic"], at["tau"], p_m=at["mask_prob"]
        )
        corpus = settings.ExactCorpusSettings(
            kind="exact",
            topics=at["topics"],
            words=at["topics"] * at["words_per_topic"],
            tau=at["tau"],
            validation=200,
        )
        for measure in grid.measures:
            if measure == "attention" and at["tau"] == 1:
                continue
            variant = _value_variant(setting, at["l2"])
            if measure == "attention":
                variant = ATTENTION
            masking = settings.TopicMaskingSettings(mask_prob=at["mask_prob"])
            update = {"masking": masking, "steps": grid.steps}
            yield Point(value, measure, corpus, variant.model_copy(update=update), setting)


# The rate falls to 0 in both, so that the last steps' noise does not count.
ATTENTION = settings.TopicVariantSettings(
    model=settings.CompactModelSettings(value="block", attention="trained"),
    loss="squared",
    learning_rate=0.01,
    schedule="linear",
    checkpoints=1,
)


def _value_variant(setting: theory.Setting, l2: float) -> settings.TopicVariantSettings:
    """W_V by SGD from near zero: without a penalty that finds the minimum-norm optimum.

    The squared loss bends most along the mean document, by 2 (p_0^2 + c^2/(T v)). SGD is stable
    below 2 over that; the rate is six tenths of the bound.
    """
    bend = setting.p_mask**2 + setting.c**2 / setting.n_words
    return settings.TopicVariantSettings(
        loss="squared",
        l2=l2,
        optimiser="sgd",
        learning_rate=0.6 / bend,
        init=settings.InitSettings(scale=1e-4),
        schedule="linear",
        checkpoints=1,
    )


def compare(
    point: Point, view: measures.TokenView, corpus: Corpus, rng: np.random.Generator
) -> list[dict[str, float | str]]:
    """Rows of a trained model's values beside two predictions.

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
        found = measures.block_means(measures.words(view.value), corpus.membership)
        trained = theory.ValueBlocks(
            found["same_with_diagonal"], found["different"], measures.mask_column(view.value)
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
    """Largest differences of trained models from each prediction; lists have a value per seed.

    `value_*`: of entries of W_V, as a share of the predicted same-topic entry at the same point;
    `attention_*`: of R, relative.
    """
    found = {}
    ratio = table["quantity"] == "R"
    for prediction in ("theorem", "finite"):
        same = table[table["quantity"] == "same topic"].groupby("value")[prediction].first()
        scale = table[prediction].where(ratio, table["value"].map(same))
        errors = ((table["measured"] - table[prediction]) / scale).abs()
        errors = errors.fillna(np.inf)  # a diverged training is as wrong as can be
        for name, rows in (("value", ~ratio), ("attention", ratio)):
            if rows.any():
                worst = errors[rows].groupby(table["seed"]).max()
                found[f"{name}_{prediction}"] = worst.tolist()
    return found


def sweep_variants(
    sweep: settings.SweepSettings,
) -> Iterator[tuple[dict[str, str | float], settings.TopicVariantSettings]]:
    """W_K, W_Q and W_V trained together, under every optimiser, learning rate and loss."""
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
    """Per seed, the weakest structure in any cell of a sweep: blocks of W_V, and attention."""
    weakest = table.fillna(-np.inf).groupby("seed")[["separated", "ratio"]].min()
    return {name: weakest[name].tolist() for name in weakest}


def sweep_row(
    view: measures.TokenView, corpus: Corpus, measurement: settings.TopicMeasurementSettings
) -> dict[str, float]:
    """How clear the blocks of W_V and its Gram matrix are, and attention by pair class."""
    blocks = measures.block_means(measures.words(view.value), corpus.membership)
    attention = measures.held_out_attention(view, corpus, measurement)
    return {name: blocks[name] for name in ("contrast", "separated")} | attention
