"""Closed forms of Theorems 1 to 3 compared with independent computations and known numbers.

The theorems are those of Li, Li & Risteski (ICML 2023). An expected number is either computed
independently in this file (dense ridge over all documents, enumeration of a loss) or was computed
once from the derived formulas with the arithmetic in its comment.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scripts.anatomy.topic import theory
from scripts.anatomy.topic.theory import TheorySetting, ValueBlocks

BERT = TheorySetting(10, 10, 3)  # T = v = 10 with BERT's p_m = 0.15, p_c = p_r = 0.1

FAMILY_SETTINGS = [
    TheorySetting(5, 3, 2),
    TheorySetting(10, 10, 3),
    TheorySetting(10, 10, 1),
    TheorySetting(6, 4, 3, p_m=0.3, p_c=0.2, p_r=0.15),
    TheorySetting(8, 5, 4, p_c=0.0),
]
UNUSUAL_SETTINGS = [
    TheorySetting(5, 3, 2, visible=False),
    TheorySetting(5, 3, 2, p_m=0.4, p_c=0.7, p_r=0.3),  # never MASK
    TheorySetting(4, 1, 3, p_r=0.0),
]
RIDGE_SETTINGS = FAMILY_SETTINGS + UNUSUAL_SETTINGS


@st.composite
def random_settings(draw: st.DrawFn, least_tau: int = 1, least_p_c: float = 0.0) -> TheorySetting:
    """Small settings with tau < T, so that every document can be enumerated."""
    T = draw(st.integers(least_tau + 1, 7))
    p_c = draw(st.floats(least_p_c, 0.9))
    return TheorySetting(
        topics=T,
        words_per_topic=draw(st.integers(1, 6)),
        tau=draw(st.integers(least_tau, T - 1)),
        p_m=draw(st.floats(0.02, 0.8)),
        p_c=p_c,
        p_r=draw(st.floats(0.01, 1.0)) * (0.99 - p_c),
    )


def as_tuple(blocks: ValueBlocks) -> tuple[float, float, float]:
    """(x, y, z)."""
    return blocks.same, blocks.different, blocks.mask_column


def block_contrast(matrix: np.ndarray, setting: TheorySetting) -> float:
    """Mean same-topic minus mean different-topic entry over words, the diagonal included."""
    topic = np.arange(setting.n_words) // setting.words_per_topic
    same = topic[:, None] == topic[None, :]
    words = matrix[1:, 1:]
    return words[same].mean() - words[~same].mean()


def dense_ridge(setting: TheorySetting, l2: float) -> np.ndarray:
    """Minimise the mean of ||W p~ - e||^2 over documents, plus l2 ||W||^2: B (A + l2 I)^-1."""
    contexts, targets = theory.document_contexts(setting), theory.document_targets(setting)
    A = contexts.T @ contexts / len(contexts)
    B = targets.T @ contexts / len(contexts)
    return np.linalg.solve(A + l2 * np.eye(len(A)), B.T).T


def minimum_norm(setting: TheorySetting) -> np.ndarray:
    """W of least norm with W p~ = q in every document, by the pseudo-inverse."""
    contexts, targets = theory.document_contexts(setting), theory.document_targets(setting)
    return (np.linalg.pinv(contexts, rcond=1e-10) @ targets).T


# Setting and documents


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"topics": 1}, "topics=1"),
        ({"words_per_topic": 0}, "words_per_topic=0"),
        ({"tau": 0}, "tau=0"),
        ({"tau": 11}, "tau=11"),
        ({"p_m": 0.0}, "p_m=0.0"),
        ({"p_m": 1.0}, "p_m=1.0"),
        ({"p_m": math.nan}, "p_m=nan"),
        ({"p_c": -0.1}, "p_c=-0.1"),
        ({"p_r": -0.2}, "p_r=-0.2"),
        ({"p_c": 0.6, "p_r": 0.5}, "0.6 \\+ 0.5"),
    ],
)
def test_a_value_out_of_range_is_refused(change: dict[str, float], value: str) -> None:
    with pytest.raises(ValueError, match=value):
        replace(BERT, **change)


def test_shares_of_the_context() -> None:
    # BERT's values: c = 1 - 0.9 * 0.15, p_0 = 0.15 * 0.8, p_m p_r = 0.15 * 0.1
    assert BERT.c == pytest.approx(0.865)
    assert BERT.p_mask == pytest.approx(0.12)
    assert BERT.p_random == pytest.approx(0.015)
    hidden = replace(BERT, visible=False)
    assert (hidden.c, hidden.p_mask, hidden.p_random, hidden.s_out) == (1, 0, 0, 0)


@pytest.mark.parametrize("setting", RIDGE_SETTINGS)
def test_documents_are_distributions(setting: TheorySetting) -> None:
    contexts, targets = theory.document_contexts(setting), theory.document_targets(setting)
    assert contexts.shape == targets.shape
    assert contexts.shape == (math.comb(setting.topics, setting.tau), 1 + setting.n_words)
    np.testing.assert_allclose(contexts.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-14)
    assert (targets[:, 0] == 0).all()
    assert len(np.unique(targets, axis=0)) == len(targets)


def test_too_many_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="184756 sets of 10 of 20 topics"):
        theory.document_contexts(TheorySetting(20, 2, 10))


# Theorem 1: embeddings


@pytest.mark.parametrize("setting", FAMILY_SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_every_member_of_the_family_predicts_every_document(
    setting: TheorySetting, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=1 + setting.n_words)
    for E in (
        theory.embedding_gram_family(setting, u),
        theory.embedding_gram_family(setting, u, rng=rng),
    ):
        # exact fit, so 0 up to rounding
        assert theory.theorem1_residual(E, setting) <= 1e-10
        assert block_contrast(E, setting) == pytest.approx(theory.gram_contrast(setting))


def test_a_matrix_outside_the_family_has_an_error() -> None:
    E = theory.embedding_gram_family(BERT, np.zeros(101), rng=np.random.default_rng(0))
    E[7, 23] += 0.1  # changes one block-row sum by 0.1: off by 0.1 s_in in documents with topic 2
    assert theory.theorem1_residual(E, BERT) == pytest.approx(0.1 * BERT.s_in)


def test_gram_contrast_at_bert_values() -> None:
    # 1/(c v) = 1/(0.865 * 10), to five digits
    assert theory.gram_contrast(BERT) == pytest.approx(0.11561, abs=5e-6)


def test_family_refuses_arguments_without_optimum() -> None:
    with pytest.raises(ValueError, match="shape"):
        theory.embedding_gram_family(BERT, np.zeros(100))
    with pytest.raises(ValueError, match="no MASK"):
        theory.embedding_gram_family(replace(BERT, visible=False), np.ones(101))
    with pytest.raises(ValueError, match="tau=10"):
        theory.gram_contrast(replace(BERT, tau=10))


# Theorem 2: the value matrix


@pytest.mark.parametrize("tau", [1, 3, 9])
def test_value_blocks_at_bert_values(tau: int) -> None:
    # the pseudo-inverse over all documents, T = v = 10; the same for every tau
    expected = (0.108020, -0.0075867, 0.0541908)
    blocks = theory.optimal_value(replace(BERT, tau=tau))
    assert as_tuple(blocks) == pytest.approx(expected, rel=1e-5)
    assert blocks.same - blocks.different == pytest.approx(0.11561, abs=5e-6)  # 1/(c v)


@pytest.mark.parametrize(
    ("l2", "expected"),
    [
        # dense ridge over the 120 documents of T = v = 10, tau = 3, to five decimals
        (1e-2, (0.01964, 0.00086, 0.03733)),
        (1e-3, (0.07246, -0.00383, 0.05185)),
        (1e-4, (0.10290, -0.00704, 0.05395)),
    ],
)
def test_value_blocks_under_a_finite_penalty(
    l2: float, expected: tuple[float, float, float]
) -> None:
    assert as_tuple(theory.optimal_value(BERT, l2=l2)) == pytest.approx(expected, abs=5.01e-6)


@pytest.mark.parametrize("setting", [*RIDGE_SETTINGS, TheorySetting(4, 3, 4)])
@pytest.mark.parametrize("l2", [1e-1, 1e-3, 1e-5])
def test_blocks_equal_the_dense_ridge_solution(setting: TheorySetting, l2: float) -> None:
    blocks = theory.value_matrix(theory.optimal_value(setting, l2=l2), theory.same_topic(setting))
    np.testing.assert_allclose(blocks, dense_ridge(setting, l2), atol=1e-10)


@pytest.mark.parametrize("setting", RIDGE_SETTINGS)
def test_blocks_without_penalty_are_the_minimum_norm_solution(setting: TheorySetting) -> None:
    blocks = theory.optimal_value(setting)
    full = theory.value_matrix(blocks, theory.same_topic(setting))
    np.testing.assert_allclose(full, minimum_norm(setting), atol=1e-10)
    # and the limit of a vanishing penalty
    assert as_tuple(theory.optimal_value(setting, l2=1e-9)) == pytest.approx(
        as_tuple(blocks), abs=1e-5
    )


def test_hidden_positions_leave_a_clean_context() -> None:
    # the context is the document itself, so W_V averages over topics: x = 1/v, y = z = 0
    blocks = theory.optimal_value(replace(BERT, visible=False))
    assert as_tuple(blocks) == pytest.approx((0.1, 0, 0), abs=1e-15)


def test_value_refuses_undefined_arguments() -> None:
    with pytest.raises(ValueError, match="l2=-1"):
        theory.optimal_value(BERT, l2=-1)
    with pytest.raises(ValueError, match="tau=10"):
        theory.optimal_value(replace(BERT, tau=10))


@given(setting=random_settings(), visible=st.booleans(), seed=st.integers(0, 99))
@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
def test_optimal_value_is_the_smallest_member_of_the_family(
    setting: TheorySetting, visible: bool, seed: int
) -> None:
    setting = replace(setting, visible=visible)
    W_V = theory.value_matrix(theory.optimal_value(setting), theory.same_topic(setting))
    assert theory.theorem1_residual(W_V, setting) <= 1e-10
    assert block_contrast(W_V, setting) == pytest.approx(
        1 / (setting.c * setting.words_per_topic), rel=1e-9
    )
    rng = np.random.default_rng(seed)
    u = np.zeros(1 + setting.n_words)
    # the only choice where the context has no MASK
    u[1:] = -setting.p_random / (setting.topics * setting.c) / (1 - setting.p_mask)
    if setting.p_mask > 0:
        u += rng.normal(scale=0.1, size=len(u))
    other = theory.embedding_gram_family(setting, u, rng=rng)
    assert np.linalg.norm(W_V) <= np.linalg.norm(other) * (1 + 1e-9)


# Theorem 3: attention


def enumerated_loss(
    setting: TheorySetting, W_V: np.ndarray, weights: tuple[float, float, float]
) -> float:
    """Return the expected loss by enumeration of documents, true words and query tokens.

    It follows the definition of the model and does not use R: key token j has the attention
    weight (c_1, c_2 or c_3) times its share of the context.
    """
    T, v = setting.topics, setting.words_per_topic
    p_m, p_c, p_r = setting.p_m, setting.p_c, setting.p_r
    tokens = range(1 + T * v)
    topic = [None] + [t for t in range(T) for _ in range(v)]

    def weight(query: int, key: int) -> float:
        if query == 0:
            return 1.0
        if query == key:
            return weights[0]
        return weights[1] if topic[query] == topic[key] else weights[2]

    def observed(word: int) -> np.ndarray:
        """Return the distribution of what a selected position with this word shows."""
        probability = np.zeros(1 + T * v)
        probability[word] += p_c
        probability[1:] += p_r / (T * v)
        probability[0] += 1 - p_c - p_r
        return probability

    total = 0.0
    documents = list(itertools.combinations(range(T), setting.tau))
    for document in documents:
        words = [token for token in tokens if topic[token] in document]
        context = np.zeros(1 + T * v)
        for word in words:
            context[word] += (1 - p_m if setting.visible else 1) / len(words)
            context += p_m * observed(word) / len(words) if setting.visible else 0
        assert context.sum() == pytest.approx(1)
        for query in tokens:
            attention = np.array([weight(query, key) * context[key] for key in tokens])
            output = W_V @ (attention / attention.sum())
            for word in words:
                error = output - np.eye(1 + T * v)[word]
                total += observed(word)[query] * (error @ error) / len(words) / len(documents)
    return total


@pytest.mark.parametrize("visible", [True, False])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (9.0, 1.5, 0.4), (0.2, 5.0, 1.0)])
def test_loss_equals_its_enumeration(visible: bool, weights: tuple[float, float, float]) -> None:
    setting = TheorySetting(5, 3, 2, visible=visible)
    R = (weights[0] + 2 * weights[1]) / (3 * weights[2])
    for blocks in (theory.optimal_value(setting), ValueBlocks(0.4, -0.1, 0.07)):
        W_V = theory.value_matrix(blocks, theory.same_topic(setting))
        expected = enumerated_loss(setting, W_V, weights)
        assert theory.attention_loss(R, setting, blocks) == pytest.approx(expected, abs=1e-12)


def test_loss_equals_its_enumeration_where_every_topic_is_present() -> None:
    setting, blocks = (
        TheorySetting(3, 2, 3, p_m=0.3, p_c=0.3, p_r=0.4),
        ValueBlocks(0.4, -0.1, 0.07),
    )
    expected = enumerated_loss(
        setting, theory.value_matrix(blocks, theory.same_topic(setting)), (3.0, 2.0, 0.5)
    )
    assert theory.attention_loss(5.0, setting, blocks) == pytest.approx(expected, abs=1e-12)


def test_loss_is_vectorised_over_ratios() -> None:
    R = np.array([[0.5, 1.0, 2.0], [4.0, 8.0, 16.0]])
    loss = theory.attention_loss(R, BERT)
    assert loss.shape == R.shape
    assert loss[1, 0] == theory.attention_loss(4.0, BERT)
    with pytest.raises(ValueError, match="R=-1.0"):
        theory.attention_loss(np.array([1.0, -1.0]), BERT)


def test_uniform_attention_has_the_loss_of_theorem_2() -> None:
    # W_V p~ = q exactly, so the loss is 1 - |q|^2 = 1 - 1/(tau v) whatever the query
    assert theory.attention_loss(1.0, BERT) == pytest.approx(1 - 1 / 30, abs=1e-14)


BEST_RATIOS = {
    # tau: R* at v = 10, BERT's masking, for T = 10, 20, 100, 1000, 1e5. Source: the stationary
    # point of the loss in 40-digit arithmetic (mpmath); to 3 or 4 digits also the
    # result of an independent minimisation.
    2: (5.7629128, 7.634947, 11.701767, 13.76222, 14.049718),
    3: (7.0050686, 10.023425, 17.255868, 21.238299, 21.811106),
    4: (7.7160264, 11.605101, 21.99428, 28.382813, 29.343652),
    5: (8.1844753, 12.754738, 26.177731, 35.364045, 36.812585),
    8: (8.953101, 14.883734, 36.344848, 55.613818, 59.100556),
}
# the closed form for T -> infinity, to three decimals, with c = 0.865
LIMITS = {2: 14.053, 3: 21.817, 4: 29.354, 5: 36.828, 8: 59.138}


@pytest.mark.parametrize("tau", BEST_RATIOS)
def test_best_attention_ratio(tau: int) -> None:
    ratio = [
        theory.optimal_attention_ratio(TheorySetting(T, 10, tau))
        for T in (10, 20, 100, 1000, 10**5)
    ]
    assert ratio == pytest.approx(BEST_RATIOS[tau], rel=1e-7)
    limit = theory.attention_ratio_limit(tau, p_m=0.15, p_c=0.1)
    assert limit == pytest.approx(LIMITS[tau], abs=5e-4)
    assert ratio[-1] == pytest.approx(limit, rel=1e-3)  # off by O(1/T): 6e-4 at tau = 8


@pytest.mark.parametrize("v", [2, 50])
@pytest.mark.parametrize("p_r", [0.0, 0.4])
def test_limit_of_many_topics_depends_neither_on_v_nor_on_p_r(v: int, p_r: float) -> None:
    best = theory.optimal_attention_ratio(TheorySetting(10**6, v, 3, p_m=0.3, p_c=0.2, p_r=p_r))
    assert best == pytest.approx(theory.attention_ratio_limit(3, p_m=0.3, p_c=0.2), rel=1e-4)


@pytest.mark.parametrize(
    ("T", "p_c", "expected"),
    [(10, 0.1, 11), (40, 0.1, 41), (10, 0.4, 41), (10**4, 0.1, 10001)],  # 1 + T p_c/p_r
)
def test_vanishing_masks_and_hidden_positions(T: int, p_c: float, expected: float) -> None:
    assert theory.vanishing_mask_ratio(T, p_c=p_c, p_r=0.1) == pytest.approx(expected)
    for tau in (2, 5):
        rare = TheorySetting(T, 10, tau, p_m=1e-8, p_c=p_c)
        assert theory.optimal_attention_ratio(rare) == pytest.approx(expected, rel=1e-3)
        # hidden: the same at any p_m, since the context is clean
        hidden = TheorySetting(T, 10, tau, p_c=p_c, visible=False)
        assert theory.optimal_attention_ratio(hidden) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("setting", [TheorySetting(T, v, 1) for T in (2, 10, 100) for v in (1, 10)])
def test_one_topic_a_document_needs_no_attention(setting: TheorySetting) -> None:
    # uniform attention is optimal
    assert theory.optimal_attention_ratio(setting) == pytest.approx(1, rel=1e-9)
    assert theory.attention_ratio_limit(1, p_m=0.15, p_c=0.1) == pytest.approx(1)


def test_without_correct_queries_attention_stays_uniform() -> None:
    # a random query word has no information about the target
    for tau in (2, 4):
        best = theory.optimal_attention_ratio(TheorySetting(10, 10, tau, p_c=0.0))
        assert best == pytest.approx(1, rel=1e-9)


@given(setting=random_settings(least_tau=2, least_p_c=0.02))
@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
def test_own_topic_gets_more_attention(setting: TheorySetting) -> None:
    best = theory.optimal_attention_ratio(setting)
    # the lower bound is Theorem 3's claim; the upper one was observed, not proved
    assert 1 < best < theory.vanishing_mask_ratio(setting.topics, setting.p_c, setting.p_r)
    nearby = theory.attention_loss(best * np.array([0.9, 1.0, 1.1]), setting)
    assert nearby.argmin() == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tau": 10}, "tau=10"),
        ({"p_c": 0.0, "p_r": 0.0}, "no effect"),
        ({"tau": 1, "visible": False}, "no effect"),
        ({"p_r": 0.0, "visible": False}, "no minimum"),
    ],
)
def test_no_best_ratio(change: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        theory.optimal_attention_ratio(replace(BERT, **change))


def test_limits_refuse_values_out_of_range() -> None:
    with pytest.raises(ValueError, match="p_r=0"):
        theory.vanishing_mask_ratio(10, p_c=0.1, p_r=0.0)
    with pytest.raises(ValueError, match="p_c=0"):
        theory.attention_ratio_limit(3, p_m=0.15, p_c=0.0)
