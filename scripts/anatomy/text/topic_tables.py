"""From a model's measurements to tables: one row a filter, one a head, and a summary.

A case is one answer to the question which topics a word has: a filter applied to an LDA fit, or
the same with the topics dealt anew among the words (shuffled), which keeps how many words and
topics there are and takes away what the topics are about.
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
    """Which topics the words have: a filter, an LDA fit, and whether they are shuffled."""

    seed: int
    fraction: float
    threshold: float
    shuffled: bool
    topics: Bool[np.ndarray, "words topics"]


def cases(
    fits: Mapping[int, Topics], filters: FilterSettings, reference: ReferenceFilterSettings
) -> list[Case]:
    """Every filter of every fit, and the reference filter of every fit shuffled."""
    found = []
    for seed, fit in fits.items():
        for fraction, threshold in filters.grid():
            topics = membership.membership(fit, fraction=fraction, threshold=threshold)
            found.append(Case(seed, fraction, threshold, False, topics))
            if reference.is_at(fraction, threshold):
                found.append(Case(seed, fraction, threshold, True, shuffled(topics, seed)))
    return found


def shuffled(
    topics: Bool[np.ndarray, "words topics"], seed: int
) -> Bool[np.ndarray, "words topics"]:
    """The topic sets dealt anew among the words that have any."""
    held = np.flatnonzero(topics.any(axis=1))
    dealt = topics.copy()
    dealt[held] = topics[seeding.numpy_generator(seed, "shuffle").permutation(held)]
    return dealt


def stack(cases: Sequence[Case]) -> Bool[np.ndarray, "cases words topics"]:
    """The topics of all cases in one array."""
    return np.stack([case.topics for case in cases])


def table(
    cases: Sequence[Case],
    attention: Attention,
    cosine: Similarity,
    dot: Similarity,
    *,
    weights: str,
) -> pd.DataFrame:
    """One row a case: its words, mean attention by class, ratios with intervals, similarities.

    Attention is averaged over layers and heads. Intervals are those of the bootstrap over
    documents. What is measured on too few pairs is NaN.
    """
    ratios = ratio(attention.means, average=True)
    low, high = bootstrap_interval(ratios[1:])
    averages = attention.means[0].mean(axis=(-2, -1))
    sizes = pd.DataFrame([membership.summary(case.topics) for case in cases])
    return pd.DataFrame(
        {
            **_names(cases, weights),
            **sizes,
            **{name: averages[:, place] for place, name in enumerate(CLASSES)},
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
    """One row a case, layer and head: its ratio with the interval of the bootstrap."""
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
    """What claims are measured on: lists over the seeds, at the reference filter.

    Per kind of weights (trained, control, shuffled) the columns of `table`; of the trained ones
    also `beyond_distance`, the ratio over what distances alone would give, the share of heads
    with a ratio above 1, and how much the cosine gap and the ratio gain from the least to the
    most strict threshold (`cosine_gap_gain`, `ratio_gain`).
    """
    found = {}
    for weights, rows in reference.rows(table).groupby("weights"):
        rows = rows.sort_values("seed")
        found[weights] = {
            name: rows[name].tolist() for name in rows if name not in ("weights", "seed")
        }
    trained = found["trained"]
    trained["beyond_distance"] = [
        r / by for r, by in zip(trained["ratio"], trained["ratio_by_distance"], strict=True)
    ]
    above = reference.rows(heads).query("weights == 'trained'").groupby("seed")["ratio"]
    trained["heads_above_1"] = above.agg(lambda r: float((r.dropna() > 1).mean())).tolist()
    trained["cosine_gap_gain"] = _gain(table, "cosine_gap", reference)
    trained["ratio_gain"] = _gain(table, "ratio", reference)
    return found


def _gain(table: pd.DataFrame, column: str, reference: ReferenceFilterSettings) -> list[float]:
    """Per seed, a column at the strictest threshold less the same at the loosest."""
    rows = table[(table["weights"] == "trained") & (table["fraction"] == reference.fraction)]
    found = []
    for _, of_seed in rows.sort_values("threshold").groupby("seed"):
        values = of_seed[column].dropna()
        found.append(float(values.iloc[-1] - values.iloc[0]) if len(values) > 1 else float("nan"))
    return found


def reference_case(cases: Sequence[Case], reference: ReferenceFilterSettings) -> Case:
    """The first seed's case at the reference filter."""
    return next(
        case
        for case in cases
        if reference.is_at(case.fraction, case.threshold) and not case.shuffled
    )


def shown_words(
    fit: Topics,
    topics: Bool[np.ndarray, "words topics"],
    usable: Bool[np.ndarray, "words"],
    *,
    count: int,
    each: int,
) -> list[list[int]]:
    """Words to draw: of the topics with most usable words of their own, the most likely ones."""
    alone = usable & (topics.sum(axis=1) == 1)
    own = [np.flatnonzero(alone & of_topic) for of_topic in topics.T]
    largest = sorted(range(len(own)), key=lambda k: -len(own[k]))[:count]
    return [
        own[k][np.argsort(-fit.posterior[k, own[k]], kind="stable")[:each]].tolist()
        for k in sorted(largest)
    ]
