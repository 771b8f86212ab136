"""The optima for documents of finite length, compared with simulation and plain loops."""

import numpy as np
import pytest
from scipy.optimize import minimize

from scripts.anatomy.topic import baselines, corpora, settings, theory
from scripts.anatomy.topic.corpora import FIRST_WORD, MASK

SETTING = theory.TheorySetting(4, 3, 2, p_m=0.2, p_c=0.3, p_r=0.2)


def documents(length: int, count: int, rng: np.random.Generator) -> corpora.Corpus:
    exact = settings.ExactCorpusSettings(
        kind="exact",
        topics=SETTING.topics,
        words=SETTING.n_words,
        tau=SETTING.tau,
        train=count,
        validation=1,
        min_length=length,
        max_length=length,
    )
    return corpora.sample(exact, rng)


def test_long_documents_give_theorem_2() -> None:
    finite = theory.finite_value(SETTING, length=10**8, l2=1e-3)
    infinite = theory.optimal_value(SETTING, l2=1e-3)
    assert finite.same == pytest.approx(infinite.same, abs=1e-6)
    assert finite.different == pytest.approx(infinite.different, abs=1e-6)
    assert finite.mask_column == pytest.approx(infinite.mask_column, abs=1e-6)


@pytest.mark.parametrize("length", [5, 20])
def test_short_documents_give_the_least_squares_solution(length: int) -> None:
    """The closed form equals a regression of targets on observed token shares."""
    rng = np.random.default_rng(0)
    words, topics = SETTING.n_words, SETTING.topics
    count = 400_000
    subset = np.argsort(rng.random((count, topics)), axis=1)[:, : SETTING.tau]

    def draw(n: int) -> np.ndarray:
        topic = np.take_along_axis(subset, rng.integers(SETTING.tau, size=(count, n)), axis=1)
        return topic * SETTING.words_per_topic + rng.integers(
            SETTING.words_per_topic, size=(count, n)
        )

    def observe(true: np.ndarray, chance_selected: float) -> np.ndarray:
        fate = rng.random(true.shape)
        random_word = rng.integers(words, size=true.shape)
        seen = np.where(fate < SETTING.p_c, true, random_word)
        seen = np.where(fate < SETTING.p_c + SETTING.p_r, seen, words)  # the last id is MASK
        return np.where(rng.random(true.shape) < chance_selected, seen, true)

    target = draw(1)
    seen = np.hstack([observe(target, 1.0), observe(draw(length - 1), SETTING.p_m)])
    shares = np.zeros((count, words + 1))
    np.add.at(shares, (np.arange(count)[:, None], seen), 1 / length)
    onehot = np.eye(words)[target[:, 0]]
    W = np.linalg.solve(shares.T @ shares, shares.T @ onehot).T
    block = theory.same_topic(SETTING)
    predicted = theory.finite_value(SETTING, length=length)
    assert W[:, :-1][block].mean() == pytest.approx(predicted.same, abs=2e-3)
    assert W[:, :-1][~block].mean() == pytest.approx(predicted.different, abs=2e-3)
    assert W[:, -1].mean() == pytest.approx(predicted.mask_column, abs=2e-3)


def test_mask_column_of_150_words() -> None:
    """At the paper's sizes the MASK column falls from 0.054 to about 1/(T v) = 0.01."""
    blocks = theory.finite_value(theory.TheorySetting(10, 10, 3), length=150)
    assert blocks.mask_column == pytest.approx(0.01, abs=1e-6)


def test_best_ratio_equals_that_of_plain_loops() -> None:
    """Minimise the loss written position by position, over R and MASK's weight."""
    corpus = documents(15, 60, np.random.default_rng(1))
    blocks = theory.optimal_value(SETTING)
    topic = np.repeat(np.arange(SETTING.topics), SETTING.words_per_topic)
    rng = np.random.default_rng(2)
    selected = baselines._select(corpus.train, rng)
    observed = baselines._replace(corpus.train, selected, SETTING.n_words, rng)

    def loss(logs: np.ndarray) -> float:
        ratio, of_mask = np.exp(logs)
        losses = []
        for true, seen, chosen in zip(corpus.train, observed, selected, strict=True):
            for position in np.flatnonzero(chosen):
                if seen[position] == MASK:
                    continue
                query = topic[seen[position] - FIRST_WORD]
                weight = np.zeros(1 + SETTING.topics)
                for token in seen:
                    if token == MASK:
                        weight[-1] += of_mask
                    else:
                        key = topic[token - FIRST_WORD]
                        weight[key] += ratio if key == query else 1.0
                weight /= weight.sum()
                words = np.repeat(weight[:-1], SETTING.words_per_topic)
                output = (
                    (blocks.same - blocks.different) * words
                    + blocks.different * (1 - weight[-1])
                    + blocks.mask_column * weight[-1]
                )
                output[true[position] - FIRST_WORD] -= 1
                losses.append(np.square(output).sum())
        return float(np.mean(losses))

    expected = np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead").x[0])
    result = baselines.best_attention_ratio(
        corpus.train, corpus.membership, blocks, np.random.default_rng(2)
    )
    assert result == pytest.approx(expected, rel=1e-3)
