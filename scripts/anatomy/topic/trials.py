"""Series of small trainings: theory against measurement, and optimisers by learning rates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from scripts.anatomy.topic import measures, settings, theory
from scripts.anatomy.topic.corpora import Corpus, token_counts

VALUE_LEARNING_RATE = 0.003
ATTENTION_LEARNING_RATE = 0.003


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
    corpus: settings.ExactCorpus
    variant: settings.Variant
    setting: theory.Setting


def points(grid: settings.Grid) -> Iterator[Point]:
    """The trainings of a grid; R is not defined for documents of one topic, so tau 1 has none."""
    for value in grid.values:
        fixed = grid.model_dump(include={"tau", "topics", "words_per_topic", "l2", "p_m"})
        at = fixed | {grid.varies: type(fixed[grid.varies])(value)}
        setting = theory.Setting(at["topics"], at["words_per_topic"], at["tau"], p_m=at["p_m"])
        corpus = settings.ExactCorpus(
            kind="exact",
            topics=at["topics"],
            words=at["topics"] * at["words_per_topic"],
            tau=at["tau"],
            dev=200,
        )
        for measure in grid.measures:
            if measure == "attention" and at["tau"] == 1:
                continue
            variant = _variant(measure, at["l2"], at["p_m"], grid.steps)
            yield Point(value, measure, corpus, variant, setting)


def _variant(measure: str, l2: float, p_m: float, steps: int) -> settings.Variant:
    attention = measure == "attention"
    return settings.Variant(
        model=settings.CompactModel(
            value="block" if attention else "trained",
            attention="trained" if attention else "uniform",
        ),
        loss="squared",
        l2=0 if attention else l2,
        masking=settings.Masking(p_m=p_m),
        learning_rate=ATTENTION_LEARNING_RATE if attention else VALUE_LEARNING_RATE,
        # the mean over the last steps' noise: let the rate fall at the end
        schedule="linear",
        steps=steps,
        checkpoints=1,
    )


def compare(point: Point, view: measures.TokenView, corpus: Corpus) -> list[dict[str, float | str]]:
    """Rows of predicted and measured values at a point."""
    if point.measure == "attention":
        pairs = {
            "R": (
                theory.optimal_attention_ratio(point.setting),
                measures.attention_ratio(view.scores, corpus.membership),
            )
        }
    else:
        predicted = theory.optimal_value(point.setting, l2=point.variant.l2)
        blocks = measures.block_means(measures.words(view.value), corpus.membership)
        pairs = {
            "same topic": (predicted.same, blocks["same_with_diagonal"]),
            "different topic": (predicted.different, blocks["different"]),
            "MASK": (predicted.mask_column, measures.mask_column(view.value)),
        }
    return [
        {"value": point.value, "quantity": name, "predicted": theirs, "measured": ours}
        for name, (theirs, ours) in pairs.items()
    ]


def errors(table: pd.DataFrame) -> dict[str, list[float]]:
    """Largest differences from theory, a list with a value per seed.

    `value_error`: of entries of W_V, as a share of the predicted same-topic entry at the same
    point; `attention_error`: of R, relative.
    """
    same = table[table["quantity"] == "same topic"].groupby("value")["predicted"].first()
    scale = table["predicted"].where(table["quantity"] == "R", table["value"].map(same))
    table = table.assign(error=(table["measured"] - table["predicted"]).abs() / scale)
    is_ratio = table["quantity"] == "R"
    found = {"value_error": table[~is_ratio], "attention_error": table[is_ratio]}
    return {
        name: part.groupby("seed")["error"].max().tolist()
        for name, part in found.items()
        if len(part)
    }


def sweep_variants(
    sweep: settings.Sweep,
) -> Iterator[tuple[dict[str, str | float], settings.Variant]]:
    """W_K, W_Q and W_V trained together, under every optimiser, learning rate and loss."""
    rates = [("adam", rate) for rate in sweep.adam] + [("sgd", rate) for rate in sweep.sgd]
    for optimiser, rate in rates:
        for loss in sweep.losses:
            yield (
                {"optimiser": optimiser, "learning_rate": rate, "loss": loss},
                settings.Variant(
                    model=settings.CompactModel(attention="trained"),
                    loss=loss,
                    optimiser=optimiser,
                    learning_rate=rate,
                    steps=sweep.steps,
                    checkpoints=1,
                ),
            )


def worst_cells(table: pd.DataFrame) -> dict[str, list[float]]:
    """Per seed, the weakest structure in any cell of a sweep: blocks of W_V, and attention."""
    return {name: table.groupby("seed")[name].min().tolist() for name in ("separated", "ratio")}


def sweep_row(
    view: measures.TokenView, corpus: Corpus, measurement: settings.Measurement
) -> dict[str, float]:
    """How clear the blocks of W_V and its Gram matrix are, and attention by pair class."""
    blocks = measures.block_means(measures.words(view.value), corpus.membership)
    tokens = corpus.dev[: measurement.documents, : measurement.longest]
    attention = measures.attention_from_counts(
        view.scores,
        token_counts(tokens, corpus.d_vocab),
        corpus.membership,
        reference_length=measurement.reference_length,
    )
    return {name: blocks[name] for name in ("contrast", "separated")} | attention
