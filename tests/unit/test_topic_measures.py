"""Measures of topic structure on matrices and attention of known structure."""

import itertools
import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scripts.anatomy.topic import corpora, measures
from scripts.anatomy.topic.corpora import END, FIRST_WORD, MASK, PAD, START, block_membership
from scripts.anatomy.topic.masking import MaskedBatch
from scripts.anatomy.topic.measures import CLASSES
from scripts.anatomy.topic.model import TopicTransformer
from scripts.anatomy.topic.settings import CompactModelSettings, GridSettings, InitSettings
from scripts.topic import plot_theory

# seven words, three topics: shared words, and one of no topic
MEMBERSHIP = np.array(
    [[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]], dtype=bool
)
DISJOINT = block_membership(6, 3)
D_VOCAB = len(MEMBERSHIP) + FIRST_WORD


def pair_class(one: int, other: int, membership: np.ndarray = MEMBERSHIP) -> int | None:
    """Return the class of two words as an index into `CLASSES`, or None."""
    topics = [set(np.flatnonzero(membership[word])) for word in (one, other)]
    if not all(topics):
        return None
    if one == other:
        return 0
    return 1 if topics[0] & topics[1] else 2


def random_matrix(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, size))


# --- pairs and blocks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "membership", [MEMBERSHIP, DISJOINT, MEMBERSHIP[:4], block_membership(3, 3)]
)
def test_pair_classes_against_a_plain_loop(membership: np.ndarray) -> None:
    classes = measures.pair_classes(membership)
    for one, other in itertools.product(range(len(membership)), repeat=2):
        expected = pair_class(one, other, membership)
        assert classes[:, one, other].tolist() == [k == expected for k in range(3)]


def test_block_means_of_planted_blocks() -> None:
    x, y, d = 0.108, -0.0076, 0.3
    matrix = np.where(DISJOINT @ DISJOINT.T, x, y) + (d - x) * np.eye(6)
    means = measures.block_means(matrix, DISJOINT)
    assert means == pytest.approx(
        {
            "diagonal": d,
            "same": x,
            "same_with_diagonal": (x + d) / 2,  # topics of two words
            "different": y,
            "contrast": (x + d) / 2 - y,
            "contrast_off_diagonal": x - y,
            "separated": 1,
        }
    )


def test_block_means_against_a_plain_loop() -> None:
    matrix = random_matrix(7)
    entries: dict[int | None, list[float]] = {0: [], 1: [], 2: [], None: []}
    for one, other in itertools.product(range(7), repeat=2):
        entries[pair_class(one, other)].append(matrix[one, other])
    assert len(entries[None]) == 13  # pairs with the word of no topic are in no class
    means = measures.block_means(matrix, MEMBERSHIP)
    assert means["diagonal"] == pytest.approx(np.mean(entries[0]))
    assert means["same"] == pytest.approx(np.mean(entries[1]))
    assert means["same_with_diagonal"] == pytest.approx(np.mean(entries[0] + entries[1]))
    assert means["different"] == pytest.approx(np.mean(entries[2]))
    assert means["contrast"] == pytest.approx(means["same_with_diagonal"] - means["different"])
    assert means["contrast_off_diagonal"] == pytest.approx(means["same"] - means["different"])
    higher = [a > b for a in entries[1] for b in entries[2]]
    assert means["separated"] == pytest.approx(np.mean(higher))


def test_noise_has_no_blocks() -> None:
    means = measures.block_means(random_matrix(200), block_membership(200, 10))
    assert means["separated"] == pytest.approx(0.5, abs=0.02)
    assert means["contrast"] == pytest.approx(0, abs=0.1)


FEW_VALUES = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=8)


@given(FEW_VALUES, FEW_VALUES)
def test_separated_against_all_pairs(above: list[float], below: list[float]) -> None:
    pairs = [float(a > b) + (a == b) / 2 for a in above for b in below]
    assert measures.separated(np.array(above), np.array(below)) == pytest.approx(np.mean(pairs))


def test_gram_and_cosine() -> None:
    vectors = np.array([[3.0, 0.0, 1.0], [4.0, 2.0, 1.0]])
    np.testing.assert_allclose(measures.gram(vectors), [[25, 8, 7], [8, 4, 2], [7, 2, 2]])
    cosine = measures.gram(vectors, cosine=True)
    assert np.diag(cosine) == pytest.approx(1)
    assert cosine[0, 1] == pytest.approx(8 / (5 * 2))
    assert cosine[1, 2] == pytest.approx(math.cos(math.pi / 4))


def test_words_and_the_mask_column() -> None:
    value = random_matrix(D_VOCAB)
    assert measures.words(value).tolist() == value[4:, 4:].tolist()
    assert measures.mask_column(value) == pytest.approx(
        sum(value[k, MASK] for k in range(4, 11)) / 7
    )


# --- attention ----------------------------------------------------------------------------------

DOCUMENTS = [
    [START, 4, 4, 5, 9, 10, 6, END],
    [START, 8, END],
    [7, 7, 10, 9, 4, 4, 4, 5, 6, 8, 8],  # without boundaries
    [START, 10, 10, MASK, 9, END],
]
TOKENS = np.array([d + [PAD] * (12 - len(d)) for d in DOCUMENTS], dtype=np.int16)


def attention_map(scores: np.ndarray, document: list[int]) -> np.ndarray:
    """Return the softmax over the keys of a document, queries by keys, padded to 12."""
    attention = np.zeros((12, 12))
    for i, query in enumerate(document):
        weights = [math.exp(scores[key, query]) for key in document]
        attention[i, : len(document)] = np.array(weights) / sum(weights)
    return attention


def loop_over_pairs(maps: np.ndarray, reference_length: int) -> dict[str, float]:
    """Return mean weights by class, one document, query and key at a time."""
    by_class: list[list[float]] = [[], [], []]
    for weights, document in zip(maps, DOCUMENTS, strict=True):
        for (i, query), (j, key) in itertools.product(enumerate(document), repeat=2):
            if query < FIRST_WORD or key < FIRST_WORD:
                continue
            of_class = pair_class(query - FIRST_WORD, key - FIRST_WORD)
            if of_class is not None:
                by_class[of_class].append(weights[i, j] * len(document) / reference_length)
    means = dict(zip(CLASSES, map(np.mean, by_class), strict=True))
    return means | {"ratio": means["same_topic"] / means["different_topic"]}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reference_length", [100, 7])
@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_attention_by_class_from_counts_and_from_maps(
    seed: int, reference_length: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "CHUNK", chunk)
    heads = [random_matrix(D_VOCAB, seed=10 * seed + head) for head in range(3)]
    maps = np.array([[attention_map(scores, d) for scores in heads] for d in DOCUMENTS])
    counts = corpora.token_counts(TOKENS, D_VOCAB)
    from_maps = measures.attention_from_maps(
        maps, TOKENS, MEMBERSHIP, reference_length=reference_length
    )
    assert len(from_maps) == 3
    for head, scores in enumerate(heads):
        expected = loop_over_pairs(maps[:, head], reference_length)
        from_counts = measures.attention_from_counts(
            scores, counts, MEMBERSHIP, reference_length=reference_length
        )
        assert from_counts == pytest.approx(expected, rel=1e-12)
        assert from_maps[head] == pytest.approx(expected, rel=1e-12)
    single = measures.attention_from_maps(
        maps.astype(np.float32), TOKENS, MEMBERSHIP, reference_length=reference_length
    )
    for one, other in zip(single, from_maps, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_attention_does_not_depend_on_a_constant_per_query() -> None:
    scores, counts = random_matrix(D_VOCAB), corpora.token_counts(TOKENS, D_VOCAB)
    shift = np.random.default_rng(1).normal(size=D_VOCAB) * 300  # a constant per query
    one, other = (
        measures.attention_from_counts(s, counts, MEMBERSHIP, reference_length=100)
        for s in (scores, scores + shift)
    )
    assert one == pytest.approx(other, rel=1e-9)


def test_scores_of_absent_tokens_do_not_matter() -> None:
    scores, counts = random_matrix(D_VOCAB), corpora.token_counts(TOKENS, D_VOCAB)
    far = scores.copy()
    far[PAD] = 300  # PAD is nowhere a key
    one, other = (
        measures.attention_from_counts(s, counts, MEMBERSHIP, reference_length=100)
        for s in (scores, far)
    )
    assert one == pytest.approx(other, rel=1e-9)


@st.composite
def documents(draw: st.DrawFn) -> np.ndarray:
    """Padded documents of different lengths, the first with a pair of each class."""
    rows = [[4, 4, 5, 8]]
    for _ in range(draw(st.integers(1, 4))):
        body = draw(st.lists(st.integers(FIRST_WORD, D_VOCAB - 1), min_size=1, max_size=9))
        rows.append([START, *body, END] if draw(st.booleans()) else body)
    return np.array([row + [PAD] * (11 - len(row)) for row in rows], dtype=np.int16)


@given(documents(), st.integers(1, 200))
@hypothesis_settings(max_examples=50)
def test_uniform_attention_has_one_value_in_all_documents(tokens: np.ndarray, length: int) -> None:
    present = tokens != PAD
    maps = np.where(present[:, None, None, :], 1 / present.sum(axis=1)[:, None, None, None], 0)
    maps = np.broadcast_to(maps, (len(tokens), 1, 11, 11))
    zero = np.zeros((D_VOCAB, D_VOCAB))
    counts = corpora.token_counts(tokens, D_VOCAB)
    for attention in (
        measures.attention_from_counts(zero, counts, MEMBERSHIP, reference_length=length),
        *measures.attention_from_maps(maps, tokens, MEMBERSHIP, reference_length=length),
    ):
        for name in CLASSES:
            assert attention[name] == pytest.approx(1 / length, rel=1e-12)
        assert attention["ratio"] == pytest.approx(1, rel=1e-12)


def test_classes_without_pairs_have_no_mean() -> None:
    tokens = np.array([[4, 4, 4]])
    attention = measures.attention_from_counts(
        np.zeros((D_VOCAB, D_VOCAB)),
        corpora.token_counts(tokens, D_VOCAB),
        MEMBERSHIP,
        reference_length=3,
    )
    assert attention["same_word"] == pytest.approx(1 / 3)
    assert all(math.isnan(attention[name]) for name in ("same_topic", "different_topic", "ratio"))


@given(documents())
@hypothesis_settings(max_examples=30)
def test_position_classes_against_a_plain_loop(tokens: np.ndarray) -> None:
    classes = measures.position_classes(tokens, MEMBERSHIP)
    for d, row in enumerate(tokens.tolist()):
        for (i, one), (j, other) in itertools.product(enumerate(row), repeat=2):
            words = one >= FIRST_WORD and other >= FIRST_WORD
            expected = pair_class(one - FIRST_WORD, other - FIRST_WORD) if words else None
            assert classes[d, :, i, j].tolist() == [k == expected for k in range(3)]


# --- Theorem 3's ratio --------------------------------------------------------------------------


def planted_scores(membership: np.ndarray, c1: float, c2: float, c3: float) -> np.ndarray:
    """Scores whose exponentials are c1 (same word), c2 (same topic) and c3, times any factor."""
    d_vocab = len(membership) + FIRST_WORD
    scores = random_matrix(d_vocab, seed=1)  # scores of special tokens do not matter
    weight = np.tensordot([c1, c2, c3], measures.pair_classes(membership), axes=1)
    scores[FIRST_WORD:, FIRST_WORD:] = np.log(np.where(weight > 0, weight, 1))
    return scores + np.random.default_rng(2).normal(size=d_vocab) * 3  # a constant per query


@pytest.mark.parametrize(("c1", "c2", "c3"), [(1, 1, 1), (2, 2, 1), (5, 0.5, 0.25), (0.1, 3, 2)])
@pytest.mark.parametrize("v", [2, 5])
def test_ratio_of_planted_attention(c1: float, c2: float, c3: float, v: int) -> None:
    membership = block_membership(4 * v, 4)
    ratio = measures.attention_ratio(planted_scores(membership, c1, c2, c3), membership)
    assert ratio == pytest.approx((c1 + (v - 1) * c2) / (v * c3))


def test_ratio_is_a_mean_over_query_words() -> None:
    scores = np.zeros((10, 10))
    scores[4:6, 4] = math.log(3)  # word 0 as a query attends three times as much to its topic
    scores[6, 6] = math.log(5)  # word 2 as a query attends more to itself
    expected = np.mean([3, 1, (5 + 1) / 2, 1, 1, 1])
    assert measures.attention_ratio(scores, DISJOINT) == pytest.approx(expected)


def test_ratio_leaves_out_words_of_no_topic_or_of_all() -> None:
    membership = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [0, 0]], dtype=bool)
    assert measures.attention_ratio(np.zeros((10, 10)), membership) == pytest.approx(1)
    scores = planted_scores(membership, 2, 2, 0.5)
    assert measures.attention_ratio(scores, membership) == pytest.approx(4)


# --- figures ------------------------------------------------------------------------------------


def test_every_setting_that_a_grid_can_vary_has_an_axis_label() -> None:
    varies = GridSettings.model_fields["varies"].annotation
    assert plot_theory.LABELS.keys() == set(get_args(varies))


# --- dynamics -----------------------------------------------------------------------------------


def test_crossing_of_known_norms() -> None:
    steps = np.array([0, 10, 100, 1000, 2000])
    norm = np.array([1.0, 2.0, 8.0, 10.0, 50.0])
    # 80 % of 10 is reached at step 100; 50 % between 10 and 100
    assert measures.crossing(steps, norm) == pytest.approx(100)
    assert measures.crossing(steps, norm, share=0.5) == pytest.approx(10 + 90 * (5 - 2) / 6)
    assert measures.crossing(steps, norm, by=2000) == pytest.approx(1000 + 1000 * 30 / 40)
    # half way to step 2000 the norm is 30
    assert measures.crossing(steps, norm, by=1500) == pytest.approx(1000 + 1000 * 14 / 40)
    # a norm reached at the start
    assert measures.crossing(steps, np.array([9.0, 9, 9, 10, 10])) == 0


@given(st.floats(0.05, 0.95), st.integers(1, 300), st.integers(50, 1000))
def test_crossing_of_a_straight_line(share: float, spacing: int, by: int) -> None:
    steps = np.arange(0, 2000, spacing)
    assert measures.crossing(steps, 3.0 * steps, share=share, by=by) == pytest.approx(share * by)


@pytest.mark.parametrize("last", [math.nan, -0.2], ids=["diverged", "did not grow"])
def test_a_norm_without_positive_growth_has_no_crossing(last: float) -> None:
    crossing = measures.crossing(np.array([0, 10, 1000]), np.array([0.1, 0.0, last]))
    assert math.isnan(crossing)


def test_the_slower_norm_crosses_later() -> None:
    steps = np.array([0, 1, 3, 10, 30, 100, 300, 1000])
    fast, slow = 1 - np.exp(-steps / 20), 1 - np.exp(-steps / 200)
    assert measures.crossing(steps, fast) < measures.crossing(steps, slow)


# --- the model as maps between tokens -----------------------------------------------------------

VIEWED = [
    CompactModelSettings(),
    CompactModelSettings(attention="trained", head="tied", d_model=D_VOCAB + 2),
    CompactModelSettings(embedding="trained", value="identity", head="tied", d_model=5),
    CompactModelSettings(embedding="trained", value="identity", head="tied"),
    CompactModelSettings(embedding="trained", attention="trained", head="trained", d_model=6),
    CompactModelSettings(value="block", attention="trained", value_gain=57),
    CompactModelSettings(value="block", head="trained", input_norm=True),
    CompactModelSettings(attention="trained", input_norm=True, biases=True),
    CompactModelSettings(
        embedding="trained",
        attention="trained",
        head="tied",
        d_model=7,
        input_norm=True,
        biases=True,
    ),
]


@pytest.mark.parametrize("settings", VIEWED, ids=range(len(VIEWED)))
def test_view_equals_the_models_maps(settings: CompactModelSettings) -> None:
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(D_VOCAB, D_VOCAB, generator=generator)
    model = TopicTransformer(
        D_VOCAB, settings, InitSettings(distribution="normal", scale=0.5), generator, block
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
    view = measures.view_of(model)
    with torch.inference_mode():
        np.testing.assert_allclose(view.embedding, model.embed(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(view.scores, model.scores(), rtol=1e-4, atol=1e-4)
        # the output for a document is the value map on the attention, and the biases
        tokens = torch.from_numpy(TOKENS.astype(np.int64))
        outputs = model(MaskedBatch(tokens, tokens, tokens > PAD, hidden=False)).numpy()
        biases = model.unembed(model.b_V[None])[0].numpy() if settings.biases else 0
    expected = [
        view.value @ np.bincount(document, weights=weights[: len(document)], minlength=D_VOCAB)
        for document in DOCUMENTS
        for weights in attention_map(view.scores, document)[: len(document)]
    ]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(outputs - biases, expected, rtol=1e-3, atol=1e-5 * scale)
    trained = dict(model.named_parameters())
    for name in ("W_E", "W_V", "W_K", "W_Q"):
        if name in trained:
            assert view.norms[name] == pytest.approx(trained[name].norm().item(), rel=1e-5)
    if settings.attention == "trained":
        product = model.W_K.T @ model.W_Q
        assert view.norms["W_KQ"] == pytest.approx(product.norm().item(), rel=1e-4)
    assert all(array.dtype == np.float64 for array in (view.embedding, view.value, view.scores))
