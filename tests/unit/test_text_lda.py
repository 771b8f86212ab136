"""The dictionary, LDA on topics that were planted, and the rules that give words their topics."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import LdaModel, TfidfModel
from gensim.parsing.preprocessing import STOPWORDS
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.optimize import linear_sum_assignment

from scripts.anatomy.artifacts import read_metadata, read_tensors, write_tensors
from scripts.anatomy.text import lda, membership, settings
from scripts.anatomy.text.lda import Topics

ALL_WORDS = settings.DictionarySettings(
    no_below=1, no_above=1, keep_n=10**6, stop_words=False, min_word_length=1
)
BLOCKS = [[stem + letter for letter in "abcdefghij"] for stem in ("animal", "metal", "court")]


def planted(documents: int, seed: int = 0) -> list[str]:
    """Documents of 60 words from three topics of ten equally likely words, mixed at random."""
    rng = np.random.default_rng(seed)
    texts = []
    for mixture in rng.dirichlet([0.2] * 3, size=documents):
        topic, word = rng.choice(3, size=60, p=mixture), rng.integers(10, size=60)
        texts.append(" ".join(BLOCKS[k][w] for k, w in zip(topic, word, strict=True)))
    return texts


TEXTS = planted(300)


def fitted(*, seed: int = 0, tfidf: bool = False, **choices: object) -> Topics:
    few = {"topics": 3, "passes": 5, "chunksize": 100, "offset": 1, "eta": 0.1}
    choice = settings.LdaSettings(**few | {"tfidf": tfidf} | choices)
    words = lda.dictionary(TEXTS, ALL_WORDS)
    return lda.fit(list(lda.bags(TEXTS, words, tfidf=tfidf)), words, choice, seed=seed)


@pytest.fixture(scope="module")
def topics() -> Topics:
    return fitted()


def block_shares(topics: Topics) -> np.ndarray:
    """Each planted block's probability in each topic, topics reordered to fit the blocks."""
    places = [[topics.words.index(word) for word in block] for block in BLOCKS]
    shares = np.array([topics.topic_words[:, block].sum(axis=1) for block in places])
    return shares[:, linear_sum_assignment(-shares)[1]]


# --- dictionary and bags ------------------------------------------------------------------------

SMALL = ["Cat cat dog", "the cat, a dog", "cat emu", "cat owl owl"]


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, {"a", "cat", "dog", "emu", "owl", "the"}),
        ({"stop_words": True}, {"cat", "dog", "emu", "owl"}),
        ({"min_word_length": 3}, {"cat", "dog", "emu", "owl", "the"}),
        ({"no_below": 2}, {"cat", "dog"}),
        ({"no_above": 0.5}, {"a", "dog", "emu", "owl", "the"}),
        ({"keep_n": 2}, {"cat", "dog"}),
    ],
)
def test_cut_offs(choices: dict[str, object], expected: set[str]) -> None:
    """Otherwise a key of the dictionary cuts other words than it says."""
    words = lda.dictionary(iter(SMALL), ALL_WORDS.model_copy(update=choices))
    assert set(words.token2id) == expected
    assert sorted(words.token2id.values()) == list(range(len(expected)))
    assert words.num_docs == 4
    assert all(words.dfs[words.token2id[word]] == DOCUMENT_FREQUENCY[word] for word in expected)


DOCUMENT_FREQUENCY = {"a": 1, "cat": 4, "dog": 2, "emu": 1, "owl": 1, "the": 1}


def test_no_word_left() -> None:
    """Otherwise cut-offs that are too strict end in an error of gensim's about no terms."""
    choice = ALL_WORDS.model_copy(update={"no_below": 5})
    with pytest.raises(ValueError, match="no_below: 5 .* all 6 words"):
        lda.dictionary(SMALL, choice)


def test_counts_and_tfidf() -> None:
    """Otherwise LDA is fitted to weights that are not what the setting says."""
    choice = ALL_WORDS.model_copy(update={"stop_words": True})
    words = lda.dictionary(SMALL, choice)

    def named(tfidf: bool) -> list[dict[str, float]]:
        bags = lda.bags(SMALL, words, tfidf=tfidf)
        return [{words[number]: weight for number, weight in bag} for bag in bags]

    dogs, emu, owls = {"cat": 2, "dog": 1}, {"cat": 1, "emu": 1}, {"cat": 1, "owl": 2}
    assert named(False) == [dogs, {"cat": 1, "dog": 1}, emu, owls]
    # a cat is in every document, so that its weight is none; the rest has unit length
    assert named(True) == [{"dog": 1}, {"dog": 1}, {"emu": 1}, {"owl": 1}]
    mixed = dict(next(lda.bags(["dog emu emu"], words, tfidf=True)))
    weight = np.array([np.log(4 / 2), 2 * np.log(4 / 1)])
    expected = weight / np.linalg.norm(weight)
    found = [mixed[words.token2id[word]] for word in ("dog", "emu")]
    assert found == pytest.approx(expected.tolist())


def test_bags_on_disk(tmp_path: Path) -> None:
    """Otherwise what LDA reads is not what was made, or a file is left that only pickle reads."""
    words = lda.dictionary(TEXTS, ALL_WORDS)
    made = list(lda.bags([*TEXTS[:20], "nothing known", TEXTS[20], ""], words, tfidf=True))
    lda.save_bags(tmp_path / "bags.mm", iter(made))
    words.save_as_text(str(tmp_path / "words.txt"))
    known, read = lda.load(tmp_path / "words.txt", tmp_path / "bags.mm")
    assert known.token2id == words.token2id and known.dfs == words.dfs
    assert len(read) == len(made) == 23
    for _ in range(2):  # a stream that can be gone through again
        for one, other in zip(read, made, strict=True):
            assert [number for number, _ in one] == [number for number, _ in other]
            np.testing.assert_allclose([w for _, w in one], [w for _, w in other], rtol=1e-12)
    assert {path.name for path in tmp_path.iterdir()} == {"bags.mm", "words.txt"}


# --- LDA ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tfidf", [False, True])
def test_planted_topics_are_found(tfidf: bool) -> None:
    """Otherwise all that is measured about topics is about something else."""
    found = fitted(tfidf=tfidf)
    shares = block_shares(found)
    assert np.diag(shares).min() > 0.95
    np.testing.assert_allclose(found.topic_words.sum(axis=1), 1, rtol=1e-12)
    tops = lda.top_words(found, 10)
    assert sorted(map(sorted, tops)) == sorted(BLOCKS)


def test_mixtures_of_documents(topics: Topics) -> None:
    """Otherwise the topics of a document are not those of its words."""
    mixed = [" ".join(BLOCKS[0] * 6), " ".join(BLOCKS[1] * 3 + BLOCKS[2] * 3), "unknown words"]
    found = lda.mixtures(topics, mixed, seed=0)
    order = [
        int(np.argmax([lda.top_words(topics, 1)[k][0] in block for k in range(3)]))
        for block in BLOCKS
    ]
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(found[0, order], [1, 0, 0], atol=0.05)
    np.testing.assert_allclose(found[1, order], [0, 0.5, 0.5], atol=0.05)
    np.testing.assert_allclose(found[2], 1 / 3, rtol=1e-6)  # nothing known: the prior
    np.testing.assert_allclose(membership.effective_topics(found), [1, 2, 3], atol=0.3)


@pytest.mark.parametrize("tfidf", [False, True])
def test_topics_are_gensims(tfidf: bool) -> None:
    """Otherwise topics taken apart give other weights, mixtures or bounds than gensim's model."""
    words = lda.dictionary(TEXTS, ALL_WORDS)
    bags = list(lda.bags(TEXTS, words, tfidf=tfidf))
    choice = settings.LdaSettings(topics=3, passes=2, tfidf=tfidf)
    found = lda.fit(bags, words, choice, seed=7)
    model = LdaModel(
        bags, id2word=words, num_topics=3, passes=2, chunksize=500, offset=64, eval_every=None,
        random_state=np.random.RandomState(np.random.PCG64(7)),
    )  # fmt: skip
    np.testing.assert_allclose(found.topic_words, model.get_topics(), rtol=1e-5)
    for number in range(len(words)):
        weights = dict(model.get_term_topics(number, minimum_probability=0))
        expected = [weights.get(k, 0) for k in range(3)]
        np.testing.assert_allclose(found.term_weights[:, number], expected, rtol=1e-3, atol=2e-8)
    plain = [words.doc2bow(text.split()) for text in TEXTS[:20]]
    held = [TfidfModel(dictionary=words)[bag] for bag in plain] if tfidf else plain
    expected = np.array([[p for _, p in model.get_document_topics(b, 0)] for b in held])
    np.testing.assert_allclose(lda.mixtures(found, TEXTS[:20], seed=0), expected, atol=0.02)
    bound = lda.bound(found, TEXTS[:20], seed=0)
    assert bound == pytest.approx(model.log_perplexity(held, total_docs=300), rel=1e-3)


def test_bound_against_what_is_known(topics: Topics) -> None:
    """Otherwise the reported perplexity is in bits, or of another sign."""
    held = planted(100, seed=1)
    # ten equally likely words of a known topic cost log 10 nats, of thirty log 30
    assert np.log(10) < -lda.bound(topics, held, seed=0) < np.log(30) + 0.2
    noise = [" ".join(sum(BLOCKS, []) * 2)] * 100  # all words alike
    assert lda.bound(topics, held, seed=0) > lda.bound(topics, noise, seed=0) + 0.3


def test_coherence_tells_topics_from_mixtures(topics: Topics) -> None:
    """Otherwise a reader cannot tell from the coherence whether topics are any good."""
    mixed = np.random.default_rng(0).permutation(30)
    shuffled = Topics(**vars(topics) | {"posterior": topics.posterior[:, mixed]})
    held = lda.topic_bags(topics, TEXTS)
    good, bad = (lda.coherence(t, held) for t in (topics, shuffled))
    assert good.shape == bad.shape == (3,)
    assert bad.max() < good.min() <= 0


def test_same_seed_same_topics(topics: Topics) -> None:
    """Otherwise a rerun of the workflow gives other topics, or seeds make no difference."""
    again, other = fitted(), fitted(seed=1)
    assert again.posterior.tobytes() == topics.posterior.tobytes()
    assert again.words == topics.words
    assert not np.allclose(other.posterior, topics.posterior, rtol=1e-3)
    one, two = (lda.mixtures(topics, TEXTS[:9], seed=3) for _ in range(2))
    assert one.tobytes() == two.tobytes()


def test_seeds_of_63_bits() -> None:
    """Otherwise seeds derived from a purpose are more than gensim's generator takes."""
    assert fitted(seed=2**63 - 1).posterior.shape == (3, 30)


def test_several_processes() -> None:
    """Otherwise asking for workers fails, or finds no topics."""
    found = fitted(workers=2, update_every=0, passes=15)
    assert np.diag(block_shares(found)).min() > 0.9


@pytest.mark.parametrize(
    "choices",
    [{"alpha": "auto", "eta": "auto"}, {"alpha": "asymmetric"}, {"alpha": 0.5, "eta": 0.2}],
)
def test_priors(choices: dict[str, object]) -> None:
    """Otherwise a prior of the configuration is lost on the way, also in what is derived later."""
    found = fitted(**choices)
    assert found.alpha.shape == (3,) and found.eta.shape == (30,)
    if choices["alpha"] == 0.5:
        np.testing.assert_allclose(found.alpha, 0.5)
        np.testing.assert_allclose(found.eta, 0.2)
    else:
        assert len(set(found.alpha.tolist())) == 3
    empty = lda.mixtures(found, [""], seed=0)
    np.testing.assert_allclose(empty[0], found.alpha / found.alpha.sum(), rtol=1e-5)


def test_there_and_back(topics: Topics, tmp_path: Path) -> None:
    """Otherwise topics read from a file are not those that were fitted."""
    found = Topics(**vars(topics) | {"words": ("naïve", "“x”", *topics.words[2:])})
    arrays, metadata = lda.to_arrays(found)
    write_tensors(tmp_path / "topics.safetensors", arrays, metadata)
    path = tmp_path / "topics.safetensors"
    read = lda.from_arrays(read_tensors(path), read_metadata(path))
    assert vars(read).keys() == vars(found).keys()
    for name, value in vars(found).items():
        np.testing.assert_array_equal(getattr(read, name), value)
        assert type(getattr(read, name)) is type(value)
    assert lda.mixtures(read, TEXTS[:5], seed=0).tobytes() == (
        lda.mixtures(found, TEXTS[:5], seed=0).tobytes()
    )


# --- rules --------------------------------------------------------------------------------------

TOPIC_WORDS = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.1, 0.2, 0.2, 0.2, 0.3]])


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (0.05, [[0], [4]]),  # int(0.25) + 1 = 1 word a topic
        (0.2, [[0, 1], [1, 4]]),  # int(1.0) + 1 = 2, the first of three equals
        (0.5, [[0, 1, 2], [1, 2, 4]]),
        (1, [[0, 1, 2, 3, 4]] * 2),
    ],
)
def test_rule_a_by_hand(fraction: float, expected: list[list[int]]) -> None:
    """Otherwise topics keep more or fewer words than the paper's rule, or ties are drawn."""
    found = membership.top_fraction(TOPIC_WORDS, fraction)
    assert found.shape == (5, 2)
    assert [np.flatnonzero(topic).tolist() for topic in found.T] == expected


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0, [[0, 1], [0, 1], [0, 1], [0, 1], [0, 1]]),
        (0.3, [[0], [0, 1], [0, 1], [0, 1], [1]]),  # shares .8 .6 1/3 1/3 .25 of topic 0
        (0.5, [[0], [0], [1], [1], [1]]),
        (0.7, [[0], [], [], [], [1]]),
        (0.9, [[], [], [], [], []]),
    ],
)
def test_rule_b_by_hand(threshold: float, expected: list[list[int]]) -> None:
    """Otherwise an ambiguous word counts for a topic that it hardly belongs to."""
    found = membership.unambiguous(3 * TOPIC_WORDS, threshold)  # the scale is of no account
    assert [np.flatnonzero(word).tolist() for word in found] == expected


def test_rule_b_where_all_weights_vanish() -> None:
    """Otherwise a word that no topic can have makes NaNs and belongs to every topic."""
    assert not membership.unambiguous(np.zeros((3, 2)), 0.3).any()


@given(st.floats(1e-4, 1), st.floats(0, 0.99), st.integers(0, 50))
def test_rules_together(fraction: float, threshold: float, seed: int) -> None:
    """Otherwise one rule switches the other off, as in the released code."""
    posterior = np.random.default_rng(seed).gamma(0.3, size=(4, 30)).astype(np.float32) + 0.05
    words = tuple(f"w{k}" for k in range(30))
    topics = Topics(words, np.ones(30, int), 9, False, posterior, np.ones(4), np.ones(30))
    both = membership.membership(topics, fraction=fraction, threshold=threshold)
    only_a = membership.membership(topics, fraction=fraction)
    only_b = membership.membership(topics, threshold=threshold)
    np.testing.assert_array_equal(both, only_a & only_b)
    assert membership.membership(topics).all()
    np.testing.assert_array_equal(only_a, membership.top_fraction(topics.topic_words, fraction))
    if threshold > 0.5:
        assert only_b.sum(axis=1).max() <= 1


def test_planted_words_get_their_topic(topics: Topics) -> None:
    """Otherwise words and topics are shifted against each other, as in the released code."""
    found = membership.membership(topics, fraction=0.3, threshold=0.5)
    block = [next(k for k in range(3) if word in BLOCKS[k]) for word in topics.words]
    same = np.equal.outer(block, block)
    np.testing.assert_array_equal(found.astype(int) @ found.T.astype(int) > 0, same)
    assert membership.summary(found) == {"words": 30, "topics_per_word": 1}


MEMBERSHIP = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1]], dtype=bool)


def test_summary_by_hand() -> None:
    """Otherwise words without a topic thin out the reported topics per word."""
    assert membership.summary(MEMBERSHIP) == {"words": 3, "topics_per_word": pytest.approx(4 / 3)}
    assert np.isnan(membership.summary(MEMBERSHIP[2:3])["topics_per_word"])


def test_effective_topics_by_hand() -> None:
    """Otherwise sparse mixtures look dense, or a zero makes NaN."""
    mixtures = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4, [0.9, 0.1, 0, 0]])
    expected = [1, 2, 4, 0.9**-0.9 * 0.1**-0.1]
    np.testing.assert_allclose(membership.effective_topics(mixtures), expected)


# --- settings -----------------------------------------------------------------------------------


def test_grid_of_filters() -> None:
    """Otherwise a combination of the grid is missing, or one that filters nothing is measured."""
    assert len(settings.FilterSettings().grid()) == 20
    filters = settings.FilterSettings(fractions=(0.01, 1), thresholds=(0, 0.5))
    assert filters.grid() == [(0.01, 0), (0.01, 0.5), (1, 0.5)]


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        (
            settings.FilterSettings,
            {"fractions": (1,), "thresholds": (0,)},
            "every word has all topics",
        ),
        (settings.FilterSettings, {"fractions": ()}, "at least 1 item"),
        (settings.FilterSettings, {"thresholds": (1.0,)}, "less than 1"),
        (settings.LdaSettings, {"workers": 2, "alpha": "auto"}, "alpha: auto needs workers: 1"),
        (settings.LdaSettings, {"topics": 1}, "greater than or equal to 2"),
        (settings.DictionarySettings, {"no_above": 0}, "greater than 0"),
    ],
)
def test_settings_that_cannot_work(kind: type, keys: dict[str, object], message: str) -> None:
    """Otherwise the mistake shows only when a job runs."""
    with pytest.raises(ValidationError) as raised:
        kind(**keys)
    assert message in str(raised.value)


def test_stop_words_are_gensims() -> None:
    """Otherwise frequent words of no topic get into the dictionary."""
    text = " ".join(STOPWORDS) + " anarchism"
    words = lda.dictionary([text], ALL_WORDS.model_copy(update={"stop_words": True}))
    assert set(words.token2id) == {"anarchism"}
