"""Topic structure of real text, measured where it was planted and against loops over pairs."""

import itertools
import tracemalloc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from benchmarks.structure import plain_loop, topic_sets
from scripts.anatomy.text import measures
from scripts.anatomy.text.measures import MIN_PAIRS, Attention, ratio, similarity, tally, unit

LAYERS, HEADS = 2, 3
WORDS, TOPICS = 30, 5
SAME_WORD, SAME_TOPIC, DIFFERENT_TOPIC = range(3)
Document = tuple[np.ndarray, np.ndarray]  # maps, and the word at each position

causal_or_not = pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])


def disjoint(words: int = WORDS, topics: int = TOPICS) -> np.ndarray:
    """Every word in one topic, the topics of equal size."""
    return np.arange(words)[:, None] * topics // words == np.arange(topics)


def random_membership(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Words of several topics, of one and of none."""
    return rng.random(shape or (WORDS, TOPICS)) < 0.25


def random_words(rng: np.random.Generator, length: int) -> np.ndarray:
    """A third of the positions hold pieces of words, or no words; first and last are special."""
    words = rng.integers(0, WORDS, length)
    words[rng.random(length) < 1 / 3] = -1
    words[[0, -1]] = -1
    return words


def random_documents(rng: np.random.Generator, *lengths: int, causal: bool) -> list[Document]:
    """Documents with random attention, in float64."""
    found = []
    for length in lengths:
        maps = rng.gamma(0.3, size=(LAYERS, HEADS, length, length)) + 1e-6
        maps = np.tril(maps) if causal else maps
        found.append((maps / maps.sum(axis=-1, keepdims=True), random_words(rng, length)))
    return found


def measure(
    documents: list[Document],
    *memberships: np.ndarray,
    causal: bool = False,
    max_length: int = 60,
    replicates: int = 0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Attention:
    return tally(
        ((torch.from_numpy(maps).to(dtype), words) for maps, words in documents),
        torch.from_numpy(np.stack(memberships)),
        causal=causal,
        max_length=max_length,
        replicates=replicates,
        rng=np.random.default_rng(seed),
    )


# --- attention ----------------------------------------------------------------------------------


@causal_or_not
@pytest.mark.parametrize(("dtype", "exact"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_sums_equal_a_loop_over_pairs(causal: bool, dtype: torch.dtype, exact: float) -> None:
    """Every number of the study would be another one than the paper defines."""
    rng = np.random.default_rng(0)
    documents = random_documents(rng, 25, 7, 60, causal=causal)
    memberships = [random_membership(rng), random_membership(rng), disjoint()]
    found = measure(documents, *memberships, causal=causal, dtype=dtype)
    loops = [plain_loop(*d, topic_sets(np.stack(memberships)), causal=causal) for d in documents]
    mass, pairs = (np.sum(part, axis=0) for part in zip(*loops, strict=True))
    assert pairs.min() > 0
    np.testing.assert_allclose(found.mass[0], mass, rtol=exact)
    np.testing.assert_array_equal(found.pairs[0], pairs)


def planted(
    rng: np.random.Generator, member: np.ndarray, weights: np.ndarray, length: int, *, causal: bool
) -> Document:
    """A document whose attention between words is as given, [class, layer, head], from uniform.

    What a query has left goes to the special token at the start; other positions that are no
    words get random attention, which must not count.
    """
    words = random_words(rng, length)
    share = (member.astype(int) @ member.T > 0).astype(int)
    held = member.any(axis=1)
    kind = np.where(np.eye(len(member), dtype=bool), SAME_WORD, DIFFERENT_TOPIC - share)
    relative = weights[kind[words][:, words]].transpose(2, 3, 0, 1)
    is_word = (words >= 0) & held[words]
    noise = rng.random((LAYERS, HEADS, length, length)) / 10
    maps = np.where(is_word[:, None] & is_word, relative, noise)
    maps /= (np.arange(1, length + 1) if causal else np.full(length, length))[:, None]
    maps = np.tril(maps) if causal else maps
    maps[..., 0] = 0
    maps[..., 0] = 1 - maps.sum(axis=-1)
    assert maps.min() >= 0
    return maps, words


@causal_or_not
def test_a_planted_ratio_is_recovered(causal: bool) -> None:
    """Special tokens, pieces of words or unequal lengths would blur the ratio that is reported."""
    rng = np.random.default_rng(1)
    member = disjoint()
    member[::7] = False  # and some words have no topic
    weights = rng.uniform(0.2, 0.9, size=(3, LAYERS, HEADS))
    documents = [planted(rng, member, weights, n, causal=causal) for n in 3 * (20, 45, 60, 33)]
    found = measure(documents, member, causal=causal, dtype=torch.float32)
    assert found.pairs.min() >= MIN_PAIRS
    np.testing.assert_allclose(found.means[0, 0], weights, rtol=1e-6)
    by_head = weights[SAME_TOPIC] / weights[DIFFERENT_TOPIC]
    np.testing.assert_allclose(ratio(found.means, average=False)[0, 0], by_head, rtol=2e-6)
    average = weights[SAME_TOPIC].mean() / weights[DIFFERENT_TOPIC].mean()
    np.testing.assert_allclose(ratio(found.means, average=True), [[average]], rtol=2e-6)


def test_topics_dealt_anew_show_no_ratio() -> None:
    """The shuffled control would carry the topics that it is there to take away."""
    rng = np.random.default_rng(2)
    member, weights = disjoint(), np.full((3, LAYERS, HEADS), 0.3)
    weights[SAME_TOPIC] = 0.6
    documents = [planted(rng, member, weights, 60, causal=False) for _ in range(20)]
    shuffles = [member[rng.permutation(WORDS)] for _ in range(20)]
    found = ratio(measure(documents, member, *shuffles).means[0], average=True)
    assert found[0] == pytest.approx(2)
    assert found[1:].mean() == pytest.approx(1, abs=0.02)
    assert found[1:].max() < 1.2


@causal_or_not
def test_uniform_attention_reads_one_in_every_class(causal: bool) -> None:
    """Long documents, or late queries of decoders, would count less than others."""
    rng = np.random.default_rng(3)
    documents = []
    for length in 4 * (60, 9, 31, 47):
        uniform = np.full((length, length), 1 / length)
        if causal:
            uniform = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
        maps = np.broadcast_to(uniform, (LAYERS, HEADS, length, length)).copy()
        documents.append((maps, random_words(rng, length)))
    found = measure(documents, disjoint(), random_membership(rng), causal=causal, replicates=5)
    assert (found.pairs[0] >= MIN_PAIRS).all()
    np.testing.assert_allclose(found.means, 1, rtol=1e-12)
    np.testing.assert_allclose(found.distance_means, 1, rtol=1e-12)
    single = measure(documents, disjoint(), causal=causal, dtype=torch.float32)
    np.testing.assert_allclose(single.means, 1, rtol=1e-6)


def by_distance_loop(documents: list[Document], member: np.ndarray, causal: bool) -> np.ndarray:
    """What a weight that depends on distance alone would sum up to by class, pair by pair."""
    (topics,) = topic_sets(member[None])
    weights: dict[int, list[np.ndarray]] = {}
    classes: list[tuple[int, int]] = []
    for maps, words in documents:
        places = [place for place, word in enumerate(words) if word >= 0]
        for i, j in itertools.permutations(places, 2):
            if causal and j > i:
                continue
            one, other = words[i], words[j]
            if one != other:
                visible = i + 1 if causal else len(words)
                weights.setdefault(i - j, []).append(maps[:, :, i, j] * visible)
            if topics[one] and topics[other]:
                meet = 1 if topics[one] & topics[other] else 2
                classes.append((0 if one == other else meet, i - j))
    total = np.zeros((3, LAYERS, HEADS))
    for kind, distance in classes:
        total[kind] += np.mean(weights.get(distance, [np.zeros((LAYERS, HEADS))]), axis=0)
    return total


@causal_or_not
def test_sums_by_distance_equal_a_loop(causal: bool) -> None:
    """The part of the ratio that nearness explains would be wrong."""
    rng = np.random.default_rng(4)
    documents = random_documents(rng, 25, 12, 30, causal=causal)
    member = random_membership(rng)
    found = measure(documents, member, causal=causal)
    np.testing.assert_allclose(
        found.by_distance[0], by_distance_loop(documents, member, causal), rtol=1e-12
    )
    longer = measure(documents, member, causal=causal, max_length=300)
    np.testing.assert_allclose(longer.by_distance, found.by_distance, rtol=1e-12)


@causal_or_not
def test_attention_to_near_words_is_explained_by_distance(causal: bool) -> None:
    """Texts stay on a topic for a while, and a model that only looks around would seem to know."""
    rng = np.random.default_rng(5)
    member = disjoint()
    slope = rng.uniform(0.02, 0.3, size=(LAYERS, HEADS, 1, 1))
    documents = []
    for length in (60, 41, 55, 60):
        # words of a topic stand together: a topic for every ten positions
        topic = rng.integers(0, TOPICS, length // 10 + 1).repeat(10)[:length]
        words = topic * (WORDS // TOPICS) + rng.integers(0, WORDS // TOPICS, length)
        words[rng.random(length) < 0.2] = -1
        apart = np.arange(length)[:, None] - np.arange(length)
        maps = np.exp(-slope * np.abs(apart)) * (1 + 0.3 * np.sign(apart))
        maps /= (np.arange(1, length + 1) if causal else np.full(length, length))[:, None]
        documents.append((np.tril(maps) if causal else maps, words))
    found = measure(documents, member, causal=causal)
    ours = ratio(found.means[0], average=False)
    assert ours.min() > 1.2
    np.testing.assert_allclose(ratio(found.distance_means, average=False), ours, rtol=1e-12)
    np.testing.assert_allclose(found.by_distance[:, 1:], found.mass[0][:, 1:], rtol=1e-12)


@causal_or_not
def test_distances_move_attention_between_classes_but_not_in_sum(causal: bool) -> None:
    """What distance explains would be measured on other pairs than the ratio."""
    rng = np.random.default_rng(6)
    documents = random_documents(rng, 50, 20, 60, causal=causal)
    found = measure(documents, disjoint(), causal=causal)  # every word has a topic
    assert not np.allclose(found.by_distance[:, 1:], found.mass[0][:, 1:], rtol=1e-3)
    np.testing.assert_allclose(
        found.by_distance[:, 1:].sum(axis=1), found.mass[0][:, 1:].sum(axis=1), rtol=1e-12
    )


@causal_or_not
def test_memberships_measured_together_are_measured_as_if_alone(causal: bool) -> None:
    """One filter's numbers would depend on which others are in the configuration."""
    rng = np.random.default_rng(7)
    documents = random_documents(rng, 40, 60, causal=causal)
    memberships = [random_membership(rng) for _ in range(4)]
    together = measure(documents, *memberships, causal=causal)
    for place, member in enumerate(memberships):
        alone = measure(documents, member, causal=causal)
        np.testing.assert_allclose(together.mass[:, place], alone.mass[:, 0], rtol=1e-12)
        np.testing.assert_allclose(together.by_distance[place], alone.by_distance[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "same", "different"), [((7, 7), 84, 98), ((10, 4), 102, 80), ((10, 5), 110, 100)]
)
def test_a_class_of_fewer_than_100_pairs_has_no_mean(
    sizes: tuple[int, int], same: int, different: int
) -> None:
    """A strict filter's ratio would be that of a handful of pairs, drawn like any other."""
    rng = np.random.default_rng(8)
    words = np.arange(sum(sizes))
    member = (words[:, None] < sizes[0]) == np.array([True, False])
    maps = rng.random((LAYERS, HEADS, len(words), len(words)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measure([(maps, words)], member, replicates=9)
        ratios = ratio(found.means, average=True)
        by_distance = ratio(found.distance_means, average=True)
        means = found.means[0, 0]
    assert found.pairs[0, 0].tolist() == [0, same, different]
    assert np.isnan(means[SAME_WORD]).all()
    for kind, pairs in ((SAME_TOPIC, same), (DIFFERENT_TOPIC, different)):
        assert np.isnan(means[kind]).all() == (pairs < 100)
        assert np.isnan(found.distance_means[0, kind]).all() == (pairs < 100)
    assert np.isnan(ratios[0, 0]) == np.isnan(by_distance[0]) == (min(same, different) < 100)


def test_documents_without_words_count_nothing() -> None:
    """A page in another script would stop the study, or change its numbers."""
    rng = np.random.default_rng(9)
    documents = random_documents(rng, 30, 50, causal=False)
    bare = [(maps, np.full_like(words, -1)) for maps, words in documents]
    found = measure(documents, disjoint())
    more = measure([bare[0], *documents, bare[1]], disjoint())
    np.testing.assert_array_equal(more.mass[0], found.mass[0])
    np.testing.assert_array_equal(more.by_distance, found.by_distance)
    assert not measure(bare, disjoint()).pairs.any()


# --- bootstrap ----------------------------------------------------------------------------------


def noisy(rng: np.random.Generator, same: float, different: float) -> Document:
    """A document that is off the true weights by noise of its own."""
    words = np.arange(12) * WORDS // 12
    member = disjoint()
    share = member[words].astype(int) @ member[words].T > 0
    weights = np.where(share, same * rng.gamma(4, 1 / 4), different * rng.gamma(4, 1 / 4))
    return np.broadcast_to(weights / len(words), (1, 1, 12, 12)).copy(), words


def test_replicates_are_documents_drawn_again() -> None:
    """Intervals would not be those of a bootstrap over documents."""
    rng = np.random.default_rng(10)
    documents = random_documents(rng, 20, 30, 25, causal=False)
    found = measure(documents, disjoint(), replicates=50, seed=3)
    alone = [measure([document], disjoint()) for document in documents]
    draws = np.random.default_rng(3)
    times = np.array([[1, *draws.poisson(1.0, 50)] for _ in documents])
    for name in ("mass", "pairs"):
        each = np.stack([getattr(one, name)[0] for one in alone])
        np.testing.assert_allclose(
            getattr(found, name), np.tensordot(times, each, axes=(0, 0)), rtol=1e-12
        )
    again = measure(documents, disjoint(), replicates=50, seed=3)
    np.testing.assert_array_equal(again.mass, found.mass)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Error bars would be too short, and noise be called a finding, or too long."""
    rng, covered, trials = np.random.default_rng(11), 0, 100
    for trial in range(trials):
        documents = [noisy(rng, 0.6, 0.4) for _ in range(30)]
        found = measure(documents, disjoint(), max_length=12, replicates=200, seed=trial)
        ratios = ratio(found.means, average=True)[1:, 0]
        low, high = np.percentile(ratios, [2.5, 97.5])
        covered += low <= 1.5 <= high
    assert 0.88 <= covered / trials <= 0.985  # 0.95 less what 30 documents are short of many


def test_memory_does_not_grow_with_the_number_of_documents() -> None:
    """All of Wikipedia would not fit."""
    rng = np.random.default_rng(12)
    ((maps, words),) = random_documents(rng, 40, causal=False)
    memberships = torch.from_numpy(np.stack([random_membership(rng) for _ in range(4)]))

    def stream(count: int) -> Iterator[tuple[torch.Tensor, np.ndarray]]:
        for _ in range(count):
            yield torch.from_numpy(maps.copy()), words

    def peak(count: int) -> int:
        tracemalloc.start()
        tally(stream(count), memberships, causal=False, max_length=40, replicates=100, rng=rng)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(2)
    assert peak(120) < 1.2 * peak(10)


# --- embeddings ---------------------------------------------------------------------------------


def similarity_loop(vectors: np.ndarray, member: np.ndarray) -> list[float]:
    """Means over all pairs, same and different, and their numbers."""
    products: list[list[float]] = [[], []]
    for one, other in itertools.permutations(range(len(vectors)), 2):
        if member[one].any() and member[other].any():
            apart = not (member[one] & member[other]).any()
            products[apart].append(float(vectors[one] @ vectors[other]))
    means = [np.mean(p) if len(p) >= MIN_PAIRS else np.nan for p in products]
    return [*means, *map(len, products)]


@given(
    seed=st.integers(0, 2**32 - 1),
    words=st.integers(1, 40),
    topics=st.integers(1, 6),
    density=st.sampled_from([0.05, 0.3, 0.7]),
    at_once=st.sampled_from([1, 3, 2048]),
)
@hypothesis_settings(max_examples=60)
def test_similarity_equals_a_loop_over_all_pairs(
    seed: int, words: int, topics: int, density: float, at_once: int
) -> None:
    """The embeddings' gap would be another one than the mean over pairs that it is said to be."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(words, 7)) + rng.normal(size=7)
    vectors[rng.random(words) < 0.2] = vectors[0]  # words with equal vectors are still two
    memberships = rng.random((3, words, topics)) < density
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "TOPIC_SET_CHUNK", at_once)
        found = similarity(vectors, memberships)
    for place, member in enumerate(memberships):
        same, different, *pairs = similarity_loop(vectors, member)
        np.testing.assert_allclose(
            [found.same[place], found.different[place]], [same, different], rtol=1e-12, atol=1e-12
        )
        assert [found.same_pairs[place], found.different_pairs[place]] == pairs


def test_planted_similarities_are_recovered() -> None:
    """A gap would be reported that is not the one in the vectors."""
    common, own = 0.6, 1.1
    vectors = np.hstack([common * disjoint(), own * np.eye(WORDS)]).astype(np.float32)
    dealt = disjoint()[np.random.default_rng(13).permutation(WORDS)]
    found = similarity(vectors, np.stack([disjoint(), dealt]))
    np.testing.assert_allclose(found.same[0], common**2, rtol=1e-6)
    assert found.different[0] == pytest.approx(0, abs=1e-12)
    assert found.same[1] - found.different[1] == pytest.approx(0, abs=0.05)
    cosines = similarity(unit(vectors), disjoint()[None])
    np.testing.assert_allclose(cosines.same, common**2 / (common**2 + own**2), rtol=1e-6)
    size = WORDS // TOPICS
    assert found.same_pairs[0] == WORDS * (size - 1)
    assert found.different_pairs[0] == WORDS * (WORDS - size)


def test_a_gap_far_smaller_than_the_vectors_is_not_lost() -> None:
    """Sums of long vectors would swamp a small difference between classes."""
    offset, common = 1e3, 1e-2
    vectors = np.hstack([np.full((WORDS, 1), offset), common * disjoint()])
    found = similarity(vectors, disjoint()[None])
    assert found.same[0] - found.different[0] == pytest.approx(common**2, rel=1e-3)


def test_unit_vectors_have_length_one_and_zeros_stay() -> None:
    """A row that was never trained would turn every mean into NaN."""
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-1e-30, 0.0]])
    np.testing.assert_allclose(unit(vectors), [[0.6, 0.8], [0, 0], [-1, 0]])
