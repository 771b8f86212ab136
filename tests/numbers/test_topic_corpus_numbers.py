"""Statistics of the default corpus, its baselines, and the pair counts of the released code.

"Measured" numbers were computed once from the data files that Li, Li & Risteski (ICML 2023)
released, 10,000 documents each for training, development and test; "derived" ones follow from the
definition of the corpus. A corpus sampled here is another draw from the same distribution, hence
the tolerances.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import digamma

from scripts.anatomy.topic import baselines, corpora
from scripts.anatomy.topic.corpora import END, FIRST_WORD, PAD, START, Corpus
from scripts.anatomy.topic.settings import LdaCorpusSettings


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """A corpus of the released size and settings."""
    lda = LdaCorpusSettings(kind="lda", train=10_000, validation=10_000)
    assert (lda.topics, lda.words, lda.alpha, lda.boundaries) == (10, 100, 0.1, True)
    assert (lda.min_length, lda.max_length) == (100, 150)
    return corpora.sample(lda, np.random.default_rng(0))


@pytest.fixture(scope="module")
def words_only() -> Corpus:
    """A corpus of the released settings without START and END."""
    lda = LdaCorpusSettings(kind="lda", train=10_000, validation=1, boundaries=False)
    return corpora.sample(lda, np.random.default_rng(0))


# --- statistics ---------------------------------------------------------------------------------


def test_statistics(corpus: Corpus) -> None:
    result = corpora.statistics(corpus)
    assert result["documents"] == 10_000
    # measured: 124.9 to 125.1; derived: the middle of 100 to 150
    assert result["mean_length"] == pytest.approx(125, abs=0.5)
    # measured: 14.65 to 14.72; derived: sqrt((51^2 - 1) / 12) = 14.72
    assert result["sd_length"] == pytest.approx(math.sqrt((51**2 - 1) / 12), abs=0.2)
    # measured
    assert result["mean_topics"] == pytest.approx(4.21, abs=0.05)
    assert result["largest_share"] == pytest.approx(0.668, abs=0.01)
    assert result["topic_entropy"] == pytest.approx(0.825, abs=0.015)


def test_histogram_of_topics_per_document(corpus: Corpus) -> None:
    counts = corpora.topic_counts(corpus.train, corpus.membership)
    result = np.bincount((counts > 0).sum(axis=1), minlength=11)
    # measured on the training file, documents of 1, 2, ..., 10 topics
    expected = [142, 802, 2165, 2810, 2407, 1202, 390, 72, 10, 0]
    assert result[0] == 0
    # both are draws, so their difference has twice the variance of one
    np.testing.assert_array_less(
        np.abs(result[1:] - expected), 5 * np.sqrt(2 * np.array(expected)) + 5
    )


def test_shares_of_topics_are_those_of_the_prior(corpus: Corpus) -> None:
    counts = corpora.topic_counts(corpus.train, corpus.membership)
    share = counts / counts.sum(axis=1, keepdims=True)
    # derived: Dirichlet with 0.1 a topic, total 1: mean 1/10, variance 0.09 / 2 (and the words')
    assert share.mean(axis=0) == pytest.approx(0.1, abs=0.011)
    of_words = (0.1 - (0.09 / 2 + 0.01)) / 125  # E[theta (1 - theta)] / n
    assert share.var(axis=0).mean() == pytest.approx(0.09 / 2 + of_words, rel=0.03)


# --- loss floors --------------------------------------------------------------------------------


def test_oracle_floor(corpus: Corpus) -> None:
    # derived: ln 10 + psi(2) - psi(1.1)
    assert baselines.oracle_loss(10, 10, 0.1) == pytest.approx(3.1491, abs=5e-5)
    # by sampling mixtures: ln v + their mean entropy
    mixtures = np.random.default_rng(0).dirichlet(np.full(6, 0.7), size=200_000)
    entropy = -(mixtures * np.log(np.maximum(mixtures, 1e-300))).sum(axis=1).mean()
    assert baselines.oracle_loss(7, 6, 0.7) == pytest.approx(math.log(7) + entropy, abs=0.005)
    # one topic leaves only the choice of the word
    assert baselines.oracle_loss(8, 1, 0.3) == pytest.approx(math.log(8))
    assert baselines.oracle_loss(1, 2, 1.0) == pytest.approx(digamma(3) - digamma(2))


def test_bayes_floor(corpus: Corpus) -> None:
    floors = [
        baselines.bayes_loss(documents, corpus.membership, 0.1, np.random.default_rng(1))
        for documents in (corpus.validation, corpus.train)
    ]
    # measured on the development file
    assert floors == pytest.approx([3.173, 3.173], abs=0.01)
    assert min(floors) > baselines.oracle_loss(10, 10, 0.1)


def test_bayes_floor_by_a_plain_loop() -> None:
    lda = LdaCorpusSettings(
        kind="lda", topics=3, words=6, alpha=0.4, min_length=3, max_length=9, train=40
    )
    small = corpora.sample(lda, np.random.default_rng(2))
    loss = baselines.bayes_loss(small.train, small.membership, 0.4, np.random.default_rng(3))
    chosen = np.random.default_rng(3).random(small.train.shape) < 0.15
    losses = []
    for row, selected in zip(small.train, chosen, strict=True):
        words = [
            (token - FIRST_WORD, s) for token, s in zip(row, selected, strict=True) if token > 3
        ]
        seen = [word // 2 for word, s in words if not s]
        for word, s in words:
            if s:
                chance = (seen.count(word // 2) + 0.4) / (len(seen) + 3 * 0.4) / 2
                losses.append(-math.log(chance))
    assert len(losses) > 20
    assert loss == pytest.approx(np.mean(losses))


def test_masking_of_the_baselines() -> None:
    # BERT's shares, as everywhere in the paper; three documents of START, 99,998 words and END
    rng = np.random.default_rng(8)
    documents = rng.integers(FIRST_WORD, 104, size=(3, 100_000))
    documents[:, 0], documents[:, -1] = START, END
    selected = baselines._select(documents, rng)
    observed = baselines._replace(documents, selected, 100, rng)
    assert not selected[:, [0, -1]].any()
    assert selected.mean() == pytest.approx(0.15, abs=0.003)
    assert (observed[~selected] == documents[~selected]).all()
    seen, true = observed[selected], documents[selected]
    # a random word is the true one with probability 1/100
    assert (seen == true).mean() == pytest.approx(0.1 + 0.1 / 100, abs=0.007)
    assert (seen == 1).mean() == pytest.approx(0.8, abs=0.01)
    drawn = seen[(seen != true) & (seen != 1)]
    assert (drawn.min(), drawn.max(), len(np.unique(drawn))) == (4, 103, 100)


# --- the best block matrices --------------------------------------------------------------------

Fit = Callable[..., baselines.BlockFit]


@pytest.mark.parametrize(
    ("visible", "boundaries", "contrast"),
    # measured: least squares on the released documents
    [(True, True, 0.1170), (True, False, 0.1152), (False, True, 0.1010), (False, False, 0.0990)],
)
def test_squared_loss_contrast(
    corpus: Corpus, words_only: Corpus, visible: bool, boundaries: bool, contrast: float
) -> None:
    documents = corpus.train if boundaries else words_only.train
    fit = baselines.fit_blocks_squared(
        documents, corpus.membership, np.random.default_rng(4), visible=visible
    )
    assert fit.contrast == pytest.approx(contrast, abs=0.002)
    if visible:
        # measured: 0.9449 to 0.9455
        assert 0.9449 - 0.001 < fit.loss < 0.9455 + 0.001
    # the loss of always answering 0 is 1
    assert fit.loss < 1


@pytest.mark.parametrize(
    ("visible", "contrast", "loss"),
    # measured: contrast and loss of the best block matrix on the released documents
    [(True, (6.47, 6.60), (3.350, 3.364)), (False, (5.55, 5.66), (3.358, 3.362))],
)
def test_cross_entropy_contrast(
    corpus: Corpus, visible: bool, contrast: tuple[float, float], loss: tuple[float, float]
) -> None:
    fit = baselines.fit_blocks_cross_entropy(
        corpus.train, corpus.membership, np.random.default_rng(5), visible=visible
    )
    assert contrast[0] - 0.15 < fit.contrast < contrast[1] + 0.15
    assert loss[0] - 0.01 < fit.loss < loss[1] + 0.01
    assert fit.loss > 3.173 - 0.01  # no predictor is below the floor


@pytest.mark.parametrize("visible", [True, False])
def test_block_fits_against_dense_least_squares_and_search(visible: bool) -> None:
    # one word and one position at a time, with six words in three topics
    lda = LdaCorpusSettings(
        kind="lda", topics=3, words=6, alpha=0.4, min_length=6, max_length=9, train=60
    )
    small = corpora.sample(lda, np.random.default_rng(6))
    rng = np.random.default_rng(7)
    selected = baselines._select(small.train, rng)
    observed = baselines._replace(small.train, selected, 6, rng)
    squares, logits = [], []  # for every selected word: features of each output, and the target
    for row, seen, chosen in zip(small.train, observed, selected, strict=True):
        positions = [
            i for i, token in enumerate(row) if token != PAD and (visible or not chosen[i])
        ]
        share = [np.mean([seen[i] == token for i in positions]) for token in range(10)]
        for word in (row[i] - FIRST_WORD for i in np.flatnonzero(chosen)):
            features = []
            for out in range(6):
                own = share[4 + out // 2 * 2] + share[5 + out // 2 * 2]
                features.append([own, sum(share[4:]) - own, *share[1:4]])
            squares.append((np.array(features), np.eye(6)[word]))
            logits.append((np.array(features)[:, 0], word))
    design = np.concatenate([features for features, _ in squares])
    aim = np.concatenate([one_hot for _, one_hot in squares])
    solution = np.linalg.lstsq(design, aim, rcond=None)[0]
    loss = np.square(design @ solution - aim).sum() / len(squares)
    fit = baselines.fit_blocks_squared(
        small.train, small.membership, np.random.default_rng(7), visible=visible
    )
    assert fit.contrast == pytest.approx(solution[0] - solution[1], rel=1e-6)
    assert fit.loss == pytest.approx(loss, rel=1e-6)

    def cross_entropy(contrast: float) -> float:
        each = [np.log(np.exp(contrast * z).sum()) - contrast * z[word] for z, word in logits]
        return float(np.mean(each))

    best = baselines.fit_blocks_cross_entropy(
        small.train, small.membership, np.random.default_rng(7), visible=visible
    )
    assert best.loss == pytest.approx(cross_entropy(best.contrast), rel=1e-9)
    for nearby in (0.9, 0.99, 1.01, 1.1):
        assert cross_entropy(best.contrast * nearby) > best.loss


def test_all_baselines_of_a_corpus(corpus: Corpus) -> None:
    few = Corpus(corpus.train[:300], corpus.validation[:300], corpus.membership)
    fits = {f"{a}_{b}" for a in ("squared", "cross_entropy") for b in ("visible", "hidden")}
    result = baselines.all_baselines(few, 0.1, np.random.default_rng(0))
    assert result.keys() == fits | {"floor"}
    assert result["floor"]["bayes"] > result["floor"]["oracle"]
    assert result["squared_visible"]["contrast"] > result["squared_hidden"]["contrast"]
    assert baselines.all_baselines(few, None, np.random.default_rng(0)).keys() == fits


# --- pairs as the released statistics count them ------------------------------------------------


def released_loop(
    documents: np.ndarray, *, fixed: bool, count: int, max_length: int
) -> dict[str, int]:
    """Count pairs with two loops over positions, in the order of the released code's branches."""
    topics = {word + (FIRST_WORD if fixed else 0): {word // 10} for word in range(100)}
    result = {"same": 0, "topic": 0, "different": 0, "empty": 0}
    for row in documents[:count].tolist():
        tokens = [token for token in row if token not in (PAD, END)][:max_length]
        if fixed:
            tokens = [token for token in tokens if token != START]
        of_token = [topics.get(token, set()) for token in tokens]
        for i in range(len(tokens)):
            for j in range(len(tokens)):
                if tokens[i] == tokens[j]:
                    result["same"] += 1
                elif not of_token[i] or not of_token[j]:
                    result["empty"] += 1
                elif of_token[i] & of_token[j]:
                    result["topic"] += 1
                else:
                    result["different"] += 1
    return result


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(("count", "max_length"), [(25, 100), (40, 37), (3, 5)])
def test_pair_counts_against_the_released_loops(
    corpus: Corpus, fixed: bool, count: int, max_length: int
) -> None:
    counts = baselines.released_pair_counts(
        corpus.validation, corpus.membership, fixed=fixed, count=count, max_length=max_length
    )
    assert counts == released_loop(
        corpus.validation, fixed=fixed, count=count, max_length=max_length
    )
    assert sum(counts.values()) == count * (max_length - fixed) ** 2
    if fixed:
        assert counts["empty"] == 0


def test_pair_counts_at_the_released_sizes(corpus: Corpus) -> None:
    # measured on the development file, 500 documents of 100 tokens: the faulty lookup by token id,
    # and the same with the lookup by word. Documents here are another sample, so within a few
    # percent.
    expected = {
        False: {"same": 319_724, "topic": 1_214_976, "different": 3_132_390, "empty": 332_910},
        True: {"same": 319_224, "topic": 2_432_394, "different": 2_148_882, "empty": 0},
    }
    for fixed, counts in expected.items():
        per_part = [
            baselines.released_pair_counts(part, corpus.membership, fixed=fixed)
            for part in np.split(corpus.validation, 20)
        ]
        assert sum(per_part[0].values()) == sum(counts.values())
        for name, count in counts.items():
            spread = [part[name] for part in per_part]
            assert abs(np.mean(spread) - count) <= 4 * np.std(spread, ddof=1), name
            assert np.mean(spread) == pytest.approx(count, rel=0.12), name
