"""From measurements to tables: cases, the shuffled control, rows, the summary of claims."""

import numpy as np
import pandas as pd
import pytest

from scripts.anatomy.text import topic_tables
from scripts.anatomy.text.lda import Topics
from scripts.anatomy.text.measures import Attention, Similarity
from scripts.anatomy.text.settings import FilterSettings, ReferenceFilterSettings

REFERENCE = ReferenceFilterSettings(fraction=0.5, threshold=0.3)
FILTERS = FilterSettings(fractions=(0.1, 0.5), thresholds=(0.0, 0.3))


def fit(seed: int = 0, topics: int = 3, words: int = 20) -> Topics:
    posterior = np.random.default_rng(seed).gamma(0.3, size=(topics, words)) + 0.01
    return Topics(
        words=tuple(f"w{number}" for number in range(words)),
        document_frequency=np.ones(words, dtype=int),
        documents=10,
        tfidf=False,
        posterior=posterior,
        alpha=np.ones(topics),
        eta=np.ones(words),
    )


CASES = topic_tables.cases({0: fit(0), 1: fit(1)}, FILTERS, REFERENCE)


def test_every_filter_of_every_fit_and_a_shuffled_reference() -> None:
    """Otherwise a filter of the grid, or the control, is missing from the table."""
    assert len(CASES) == 2 * (len(FILTERS.grid()) + 1)
    assert [case.seed for case in CASES if case.shuffled] == [0, 1]
    assert all((c.fraction, c.threshold) == (0.5, 0.3) for c in CASES if c.shuffled)
    assert topic_tables.reference_case(CASES, REFERENCE).seed == 0
    assert not topic_tables.reference_case(CASES, REFERENCE).shuffled


def test_shuffling_keeps_the_topic_sets_and_moves_them() -> None:
    """Otherwise the control has other numbers of words and topics, and shows something else."""
    topics = topic_tables.reference_case(CASES, REFERENCE).topics
    dealt = topic_tables.shuffled(topics, seed=5)
    held = topics.any(axis=1)
    assert (dealt.any(axis=1) == held).all()
    assert sorted(map(tuple, dealt[held])) == sorted(map(tuple, topics[held]))
    assert (dealt != topics).any()
    assert (topic_tables.shuffled(topics, seed=5) == dealt).all()


def measured(cases: list[topic_tables.Case], ratio: float) -> Attention:
    """Two layers of two heads in which same-topic attention is `ratio` times the other's."""
    means = np.ones((3, len(cases), 3, 2, 2))
    means[:, :, 1] = ratio
    pairs = np.full((3, len(cases), 3), 1000.0)
    return Attention(means * pairs[..., None, None], pairs, means[0] * pairs[0][..., None, None])


def similar(cases: list[topic_tables.Case], same: float) -> Similarity:
    ones = np.ones(len(cases))
    return Similarity(same * ones, 0.1 * ones, 500 * ones, 900 * ones)


def tables(ratio: float = 1.5) -> tuple[pd.DataFrame, pd.DataFrame]:
    attention = measured(CASES, ratio)
    table = topic_tables.table(
        CASES, attention, similar(CASES, 0.3), similar(CASES, 0.5), weights="trained"
    )
    return table, topic_tables.head_table(CASES, attention, weights="trained")


def test_a_row_a_case() -> None:
    """Otherwise numbers stand beside the wrong filter."""
    table, heads = tables()
    assert len(table) == len(CASES)
    assert table["ratio"].tolist() == pytest.approx([1.5] * len(CASES))
    assert table["cosine_gap"].tolist() == pytest.approx([0.2] * len(CASES))
    assert table["words"].tolist() == [case.topics.any(axis=1).sum() for case in CASES]
    assert (table["weights"] == "shuffled").tolist() == [case.shuffled for case in CASES]
    assert len(heads) == len(CASES) * 4
    first = heads.iloc[:4]
    assert first[["layer", "head"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert first["fraction"].nunique() == 1


def test_the_summary_has_a_value_a_seed() -> None:
    """Otherwise claims are judged on another filter, or with too few seeds."""
    table, heads = tables()
    # the gap at the reference fraction grows with the threshold, by 0.04 and 0.1
    for seed, gain in ((0, 0.04), (1, 0.1)):
        strict = (table["seed"] == seed) & (table["fraction"] == 0.5) & (table["threshold"] == 0.3)
        table.loc[strict & (table["weights"] == "trained"), "cosine_gap"] += gain
    found = topic_tables.summary(table, heads, REFERENCE)
    assert found["trained"]["ratio"] == pytest.approx([1.5, 1.5])
    assert found["trained"]["cosine_gap_gain"] == pytest.approx([0.04, 0.1])
    assert found["trained"]["beyond_distance"] == pytest.approx([1.0, 1.0])
    assert found["trained"]["heads_above_1"] == [1.0, 1.0]
    assert len(found["shuffled"]["ratio"]) == 2


def test_words_to_show_belong_to_one_topic_and_are_usable() -> None:
    """Otherwise the picture has words that the model cannot read, or under two topics."""
    source = fit()
    topics = topic_tables.reference_case(CASES, REFERENCE).topics
    usable = np.arange(20) % 3 > 0
    shown = topic_tables.words_to_draw(source, topics, usable, count=2, each=4)
    assert 1 <= len(shown) <= 2
    for group in shown:
        assert all(usable[number] and topics[number].sum() == 1 for number in group)
        (topic,) = {int(topics[number].argmax()) for number in group}
        weights = source.posterior[topic, group]
        assert (np.diff(weights) <= 0).all()
