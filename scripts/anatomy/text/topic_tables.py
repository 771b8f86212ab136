"""Make tables of a model's measurements: one row a filter, one row a head, and a summary.

A case assigns topics to words: a filter applied to an LDA fit, or that assignment shuffled among
the words. Shuffling keeps the numbers of words and topics and removes what the topics mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool

from scripts.anatomy import seeding
from scripts.anatomy.statistics import bootstrap_interval
from scripts.anatomy.text import membership
from scripts.anatomy.text.lda import Topics
from scripts.anatomy.text.measures import CLASSES, Attention, Similarity, ratio
from scripts.anatomy.text.settings import FilterSettings, ReferenceFilterSettings


@dataclass(frozen=True)
class Case:
    """The topics of all words: by which LDA fit and filter, and whether shuffled."""

    seed: int
    fraction: float
    threshold: float
    shuffled: bool
    topics: Bool[np.ndarray, "words topics"]


def cases(
    fits: Mapping[int, Topics], filters: FilterSettings, reference: ReferenceFilterSettings
) -> list[Case]:
    """Return every filter of every fit, and the reference filter of every fit shuffled."""
    made = []
    for seed, fit in fits.items():
        for fraction, threshold in filters.grid():
            topics = membership.membership(fit, fraction=fraction, threshold=threshold)
            made.append(Case(seed, fraction, threshold, False, topics))
            if reference.is_at(fraction, threshold):
                made.append(Case(seed, fraction, threshold, True, shuffled(topics, seed)))
    return made


def shuffled(
    topics: Bool[np.ndarray, "words topics"], seed: int
) -> Bool[np.ndarray, "words topics"]:
    """Return the topic sets permuted among the words that have any."""
    held = np.flatnonzero(topics.any(axis=1))
    dealt = topics.copy()
    dealt[held] = topics[seeding.numpy_generator(seed, "shuffle").permutation(held)]
    return dealt


def stack(cases: Sequence[Case]) -> Bool[np.ndarray, "cases words topics"]:
    """Return the topics of all cases in one array."""
    return np.stack([case.topics for case in cases])


def table(
    cases: Sequence[Case],
    attention: Attention,
    cosine: Similarity,
    dot: Similarity,
    *,
    weights: str,
) -> pd.DataFrame:
    """Return one row a case: its words, mean attention by class, ratios, similarities.

    Attention is averaged over layers and heads. Intervals are of the bootstrap over documents.
    Means over too few pairs are NaN.
    """
    ratios = ratio(attention.means, average=True)
    low, high = bootstrap_interval(ratios[1:])
    averages = attention.means[0].mean(axis=(-2, -1))
    sizes = pd.DataFrame([membership.summary(case.topics) for case in cases])
    return pd.DataFrame(
        {
            **_names(cases, weights),
            **sizes,
            **{name: averages[:, i] for i, name in enumerate(CLASSES)},
            **{f"pairs_{name}": attention.pairs[0, :, i] for i, name in enumerate(CLASSES)},
            "ratio": ratios[0],
            "ratio_low": low,
            "ratio_high": high,
            "ratio_by_distance": ratio(attention.distance_means, average=True),
            "cosine_same": cosine.same,
            "cosine_different": cosine.different,
            "cosine_gap": cosine.same - cosine.different,
            "dot_same": dot.same,
            "dot_different": dot.different,
            "dot_gap": dot.same - dot.different,
            "word_pairs_same": cosine.same_pairs,
            "word_pairs_different": cosine.different_pairs,
        }
    )


def head_table(cases: Sequence[Case], attention: Attention, *, weights: str) -> pd.DataFrame:
    """Return one row a case, layer and head: its ratio with the bootstrap interval."""
    ratios = ratio(attention.means, average=False)
    low, high = bootstrap_interval(ratios[1:])
    of_case, layer, head = (index.ravel() for index in np.indices(ratios.shape[1:]))
    names = pd.DataFrame(_names(cases, weights)).iloc[of_case].reset_index(drop=True)
    return names.assign(
        layer=layer, head=head, ratio=ratios[0].ravel(), low=low.ravel(), high=high.ravel()
    )


def _names(cases: Sequence[Case], weights: str) -> dict[str, list]:
    return {
        "weights": ["shuffled" if case.shuffled else weights for case in cases],
        "seed": [case.seed for case in cases],
        "fraction": [case.fraction for case in cases],
        "threshold": [case.threshold for case in cases],
    }


def summary(
    table: pd.DataFrame, heads: pd.DataFrame, reference: ReferenceFilterSettings
) -> dict[str, dict]:
    """Return the metrics of claims: lists over the seeds, at the reference filter.

    For each kind of weights (trained, control, shuffled), the columns of `table`. For the trained
    ones also `beyond_distance`, the ratio over the one that distance alone predicts;
    `heads_above_1`, the share of heads with a ratio above 1; and `cosine_gap_gain` and
    `ratio_gain`, the change from the loosest to the strictest threshold.
    """
    metrics = {}
    for weights, rows in reference.rows(table).groupby("weights"):
        rows = rows.sort_values("seed")
        metrics[weights] = {
            name: rows[name].tolist() for name in rows if name not in ("weights", "seed")
        }
    trained = metrics["trained"]
    trained["beyond_distance"] = [
        r / by for r, by in zip(trained["ratio"], trained["ratio_by_distance"], strict=True)
    ]
    above = reference.rows(heads).query("weights == 'trained'").groupby("seed")["ratio"]
    trained["heads_above_1"] = above.agg(lambda r: float((r.dropna() > 1).mean())).tolist()
    trained["cosine_gap_gain"] = _gain(table, "cosine_gap", reference)
    trained["ratio_gain"] = _gain(table, "ratio", reference)
    return metrics


def _gain(table: pd.DataFrame, column: str, reference: ReferenceFilterSettings) -> list[float]:
    """Return, per seed, a column at the strictest threshold minus that at the loosest."""
    rows = table[(table["weights"] == "trained") & (table["fraction"] == reference.fraction)]
    gains = []
    for _, of_seed in rows.sort_values("threshold").groupby("seed"):
        values = of_seed[column].dropna()
        gains.append(float(values.iloc[-1] - values.iloc[0]) if len(values) > 1 else float("nan"))
    return gains


def reference_case(cases: Sequence[Case], reference: ReferenceFilterSettings) -> Case:
    """Return the first seed's case at the reference filter."""
    return next(
        case
        for case in cases
        if reference.is_at(case.fraction, case.threshold) and not case.shuffled
    )


def words_to_draw(
    fit: Topics,
    topics: Bool[np.ndarray, "words topics"],
    usable: Bool[np.ndarray, "words"],
    *,
    count: int,
    each: int,
) -> list[list[int]]:
    """Return the likeliest unambiguous words of the `count` topics that have most of them."""
    alone = usable & (topics.sum(axis=1) == 1)
    own = [np.flatnonzero(alone & of_topic) for of_topic in topics.T]
    largest = sorted(range(len(own)), key=lambda k: -len(own[k]))[:count]
    return [
        own[k][np.argsort(-fit.posterior[k, own[k]], kind="stable")[:each]].tolist()
        for k in sorted(largest)
    ]
