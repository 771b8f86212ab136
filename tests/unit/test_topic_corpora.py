"""Corpora sampled from settings or read from files, their statistics and their storage."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scripts.anatomy import artifacts
from scripts.anatomy.topic import corpora, settings
from scripts.anatomy.topic.corpora import END, FIRST_WORD, MASK, PAD, START, Corpus
from scripts.anatomy.topic.settings import (
    ExactCorpusSettings,
    LdaCorpusSettings,
    OverlapCorpusSettings,
    SampledCorpusSettings,
    TextFileCorpusSettings,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@st.composite
def sampled(draw: st.DrawFn) -> SampledCorpusSettings:
    """Settings of any sampled corpus, small."""
    topics, min_length = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    shared = {
        "words": topics * draw(st.integers(1, 5)),
        "topics": topics,
        "min_length": min_length,
        "max_length": min_length + draw(st.integers(0, 6)),
        "train": draw(st.integers(1, 40)),
        "validation": draw(st.integers(1, 10)),
        "boundaries": draw(st.booleans()),
    }
    match draw(st.sampled_from(["lda", "exact", "overlap"])):
        case "lda":
            return LdaCorpusSettings(kind="lda", alpha=draw(st.floats(0.02, 5)), **shared)
        case "exact":
            return ExactCorpusSettings(kind="exact", tau=draw(st.integers(1, topics)), **shared)
        case _:
            beta = draw(st.floats(0.05, 5))
            return OverlapCorpusSettings(kind="overlap", beta=beta, **shared)


# --- sampled documents --------------------------------------------------------------------------


def test_token_ids_are_those_of_the_released_code() -> None:
    assert (PAD, MASK, START, END, FIRST_WORD) == (0, 1, 2, 3, 4)


@given(sampled(), st.integers(0, 5))
def test_documents_are_framed_words_of_allowed_lengths(
    corpus: SampledCorpusSettings, seed: int
) -> None:
    drawn = corpora.sample(corpus, rng(seed))
    ends = 2 if corpus.boundaries else 0
    assert drawn.d_vocab == corpus.words + 4
    assert drawn.membership.shape == (corpus.words, corpus.topics)
    for documents, count in ((drawn.train, corpus.train), (drawn.validation, corpus.validation)):
        assert documents.dtype == np.int16
        assert documents.shape == (count, corpus.max_length + ends)
        for row in documents.tolist():
            document = row[: len(row) - row[::-1].index(next(t for t in row[::-1] if t != PAD))]
            if corpus.boundaries:
                assert (document[0], document[-1]) == (START, END)
                document = document[1:-1]
            assert corpus.min_length <= len(document) <= corpus.max_length
            assert all(FIRST_WORD <= token < drawn.d_vocab for token in document)


def test_all_lengths_and_words_occur() -> None:
    corpus = LdaCorpusSettings(
        kind="lda", topics=3, words=12, alpha=1, min_length=2, max_length=5, train=400
    )
    documents = corpora.sample(corpus, rng()).train
    lengths = corpora.word_mask(documents).sum(axis=1)
    # each of 4 lengths has 100 documents on average, sd 9
    assert np.bincount(lengths).tolist()[:2] == [0, 0]
    assert (np.abs(np.bincount(lengths)[2:] - 100) < 45).all()
    assert np.unique(documents).tolist() == [PAD, START, END, *range(4, 16)]


@given(sampled())
@hypothesis_settings(max_examples=20)
def test_the_same_generator_gives_the_same_corpus(corpus: SampledCorpusSettings) -> None:
    one, other = (corpora.sample(corpus, rng(3)) for _ in range(2))
    for name in ("train", "validation", "membership"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("count", [1999, 2000, 2001, 4003])
def test_documents_drawn_in_chunks_are_complete_and_distinct(count: int) -> None:
    corpus = LdaCorpusSettings(kind="lda", min_length=12, max_length=12, train=count, validation=1)
    documents = corpora.sample(corpus, rng()).train
    assert len(documents) == count
    assert len(np.unique(documents, axis=0)) == count


def test_training_and_held_out_documents_differ() -> None:
    corpus = ExactCorpusSettings(kind="exact", train=20, validation=20)
    drawn = corpora.sample(corpus, rng())
    assert (drawn.train != drawn.validation).any(axis=1).all()


@pytest.mark.parametrize("words", [6, 12])
def test_blocks_are_consecutive(words: int) -> None:
    membership = corpora.block_membership(words, 3)
    assert membership.sum(axis=1).tolist() == [1] * words
    assert membership.argmax(axis=1).tolist() == [word // (words // 3) for word in range(words)]


@pytest.mark.parametrize("tau", [1, 2, 5])
def test_exact_documents_have_tau_topics_in_equal_shares(tau: int) -> None:
    corpus = ExactCorpusSettings(
        kind="exact", topics=5, words=20, tau=tau, train=3000, validation=1
    )
    drawn = corpora.sample(corpus, rng())
    counts = corpora.topic_counts(drawn.train, drawn.membership)
    assert (counts.sum(axis=1) == 150).all()
    # 150 words miss one of tau topics with chance tau (1 - 1/tau)^150 < 1e-14
    assert ((counts > 0).sum(axis=1) == tau).all()
    present = counts[counts > 0] / 150
    # each document's shares are multinomial around 1/tau; and no topic is preferred
    assert present.mean() == pytest.approx(1 / tau)
    assert present.var() == pytest.approx((1 / tau) * (1 - 1 / tau) / 150, rel=0.05, abs=1e-12)
    standard_error = np.sqrt(tau / 5 * (1 - tau / 5) / 3000) + 1e-12
    assert (np.abs((counts > 0).mean(axis=0) - tau / 5) < 5 * standard_error).all()
    # every subset of topics occurs
    subsets = {tuple(np.flatnonzero(row)) for row in counts}
    assert subsets == set(itertools.combinations(range(5), tau))
    # words of a topic are equally likely: 22,500 of each are expected, sd about 150
    words = np.bincount(drawn.train[drawn.train >= FIRST_WORD], minlength=24)[FIRST_WORD:]
    assert (np.abs(words / 22_500 - 1) < 0.15).all()
    within = words.reshape(5, 4) / words.reshape(5, 4).sum(axis=1, keepdims=True)
    assert (np.abs(within - 0.25) < 0.015).all()


@pytest.mark.parametrize("alpha", [0.1, 1.0, 20.0])
def test_lda_mixtures_have_the_moments_of_their_prior(alpha: float) -> None:
    lengths = {"min_length": 60, "max_length": 60}
    corpus = LdaCorpusSettings(
        kind="lda", topics=4, words=8, alpha=alpha, train=4000, validation=1, **lengths
    )
    drawn = corpora.sample(corpus, rng())
    counts = corpora.topic_counts(drawn.train, drawn.membership)
    # Dirichlet-multinomial: mean n/T, variance n (1/T) (1 - 1/T) (n + T alpha) / (1 + T alpha)
    variance = 60 * (1 / 4) * (3 / 4) * (60 + 4 * alpha) / (1 + 4 * alpha)
    np.testing.assert_allclose(counts.mean(axis=0), 15, atol=5 * np.sqrt(variance / 4000))
    assert counts.var(axis=0).mean() == pytest.approx(variance, rel=0.06)
    # and the words of a document are exchangeable: the first half is like the second
    halves = [
        corpora.topic_counts(half, drawn.membership)
        for half in (drawn.train[:, 1:31], drawn.train[:, 31:61])
    ]
    covariance = np.mean((halves[0] - 7.5) * (halves[1] - 7.5))
    assert covariance == pytest.approx(30 * 30 * (3 / 16) / (1 + 4 * alpha), rel=0.15)


def overlap(**changes: object) -> OverlapCorpusSettings:
    """A corpus whose topics share words."""
    defaults = {"topics": 4, "words": 30, "beta": 0.2, "train": 2000, "validation": 1}
    return OverlapCorpusSettings.model_validate({"kind": "overlap"} | defaults | changes)


def test_overlap_membership_is_the_share_of_a_words_probability() -> None:
    corpus = overlap(membership=0.3, alpha=0.5, train=8000)
    result = corpora.sample(corpus, rng())
    topic_words = rng().dirichlet(np.full(30, 0.2), size=4)  # the first draw of the generator
    share = topic_words / topic_words.sum(axis=0)
    np.testing.assert_array_equal(result.membership, (share >= 0.3).T)
    assert set(result.membership.sum(axis=1)) >= {1, 2}  # some words are shared
    # documents are drawn from these topics: over a symmetric prior a word's chance is the mean
    words = result.train[result.train >= FIRST_WORD] - FIRST_WORD
    chance = np.bincount(words, minlength=30) / len(words)
    np.testing.assert_allclose(chance, topic_words.mean(axis=0), atol=0.01)


def test_overlap_documents_of_one_topic_have_its_words() -> None:
    # with a tiny alpha every document is about a single topic
    corpus = overlap(alpha=0.002, boundaries=False, min_length=400, max_length=400)
    drawn = corpora.sample(corpus, rng(1))
    topic_words = rng(1).dirichlet(np.full(30, 0.2), size=4)
    frequencies = corpora.token_counts(drawn.train, 34)[:, FIRST_WORD:] / 400
    distance = np.abs(frequencies[:, None] - topic_words).sum(axis=2)
    assert (np.median(distance.min(axis=1)) < 0.3) & (np.median(distance.max(axis=1)) > 0.8)
    nearest = distance.argmin(axis=1)
    for topic in range(4):
        mean = frequencies[nearest == topic].mean(axis=0)
        np.testing.assert_allclose(mean, topic_words[topic], atol=0.01)


@pytest.mark.parametrize(("topics", "words"), [(40, 1000), (3, 20_000)])
def test_overlap_corpora_of_many_topics_and_words(topics: int, words: int) -> None:
    # token ids have 16 bits; topics times words needs more
    corpus = overlap(topics=topics, words=words, beta=1, alpha=1, train=300)
    result = corpora.sample(corpus, rng(2))
    topic_words = rng(2).dirichlet(np.ones(words), size=topics)
    drawn = result.train[result.train >= FIRST_WORD] - FIRST_WORD
    # what is drawn falls into the first half of the words as often as the topics say
    lower = topic_words[:, : words // 2].sum(axis=1).mean()
    assert (drawn < words // 2).mean() == pytest.approx(lower, abs=0.02)
    assert np.bincount(drawn).max() / len(drawn) < 20 / words


# --- counting -----------------------------------------------------------------------------------

MEMBERSHIP = np.array(  # six words, three topics: two of one topic, two shared, one of none
    [[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=bool
)


@st.composite
def token_arrays(draw: st.DrawFn) -> np.ndarray:
    """Documents of six words, special tokens anywhere."""
    docs, max_length = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    ids = st.lists(st.integers(0, 9), min_size=max_length, max_size=max_length)
    rows = draw(st.lists(ids, min_size=docs, max_size=docs))
    return np.array(rows, dtype=draw(st.sampled_from([np.int16, np.int64])))


@given(token_arrays())
def test_counts_against_a_plain_loop(tokens: np.ndarray) -> None:
    by_token = np.zeros((len(tokens), 10))
    by_topic = np.zeros((len(tokens), 3))
    for d, row in enumerate(tokens.tolist()):
        for token in row:
            if token != PAD:
                by_token[d, token] += 1
            if token >= FIRST_WORD:
                topics = np.flatnonzero(MEMBERSHIP[token - FIRST_WORD])
                for topic in topics:
                    by_topic[d, topic] += 1 / len(topics)
    np.testing.assert_array_equal(corpora.token_counts(tokens, 10), by_token)
    np.testing.assert_allclose(corpora.topic_counts(tokens, MEMBERSHIP), by_topic, rtol=1e-12)
    np.testing.assert_array_equal(corpora.word_mask(tokens), tokens >= 4)


def test_counts_of_many_documents_do_not_overflow() -> None:
    tokens = np.full((3000, 2), 32_003, dtype=np.int16)
    assert (corpora.token_counts(tokens[:40], 32_004)[:, -1] == 2).all()
    tokens = np.tile(np.arange(4, 104, dtype=np.int16), (3000, 1))
    assert corpora.token_counts(tokens, 104)[:, 4:].tolist() == np.ones((3000, 100)).tolist()


def test_statistics_of_a_small_corpus() -> None:
    train = np.array(
        [
            [START, 4, 5, 6, 7, END],  # two words of each topic
            [START, 4, 4, END, PAD, PAD],  # one topic only
            [START, 4, 7, 7, END, PAD],  # a third and two thirds
        ],
        dtype=np.int16,
    )
    statistics = corpora.statistics(Corpus(train, train[:1], corpora.block_membership(4, 2)))
    entropy = [np.log(2), 0, np.log(3) - np.log(2) * 2 / 3]
    assert statistics == pytest.approx(
        {
            "documents": 3,
            "mean_length": 3,
            "sd_length": np.std([4, 2, 3]),
            "mean_topics": 5 / 3,
            "largest_share": (1 / 2 + 1 + 2 / 3) / 3,
            "topic_entropy": np.mean(entropy),
        }
    )


def test_statistics_of_documents_with_words_of_no_topic() -> None:
    train = np.array([[4, 4, 9], [9, 9, 9]], dtype=np.int16)  # word 5 has no topic
    statistics = corpora.statistics(Corpus(train, train, MEMBERSHIP))
    assert all(np.isfinite(value) for value in statistics.values()), statistics
    assert (statistics["mean_length"], statistics["mean_topics"]) == (3, 0.5)


# --- files --------------------------------------------------------------------------------------


def text(
    folder: Path, train: str, validation: str = "1 END\n", table: str | None = None
) -> TextFileCorpusSettings:
    """Return settings for these file contents; without a table, six words in three blocks."""
    (folder / "train.txt").write_text(train, encoding="utf-8")
    (folder / "validation.txt").write_text(validation, encoding="utf-8")
    files = {"train": folder / "train.txt", "validation": folder / "validation.txt"}
    if table is None:
        return TextFileCorpusSettings(kind="text", topics=3, words=6, **files)
    (folder / "table.csv").write_text(table, encoding="utf-8")
    return TextFileCorpusSettings(kind="text", table=folder / "table.csv", **files)


def test_text_files_of_known_tokens(tmp_path: Path) -> None:
    result = corpora.read(text(tmp_path, "0 5 5 END\n3 END\n", "  2\t1 END"))
    assert result.train.dtype == np.int16
    assert result.train.tolist() == [[START, 4, 9, 9, END], [START, 7, END, PAD, PAD]]
    assert result.validation.tolist() == [[START, 6, 5, END]]
    np.testing.assert_array_equal(result.membership, corpora.block_membership(6, 3))


def test_text_with_a_table(tmp_path: Path) -> None:
    table = "word, topic\nnaïve,a\ncat , pets\ndog,pets\ncat,a\n"
    result = corpora.read(text(tmp_path, "dog cat naïve END\n", "cat END\n", table))
    assert result.train.tolist() == [[START, 6, 5, 4, END]]
    assert result.membership.tolist() == [[True, False], [True, True], [False, True]]
    assert result.d_vocab == 7


def write_text(path: Path, documents: np.ndarray) -> None:
    """Write documents as `corpora.read` takes them: word numbers, END last."""
    lines = [" ".join(map(str, row[row >= FIRST_WORD] - FIRST_WORD)) for row in documents]
    path.write_text("".join(f"{line} END\n" for line in lines))


@given(sampled(), st.integers(0, 3))
@hypothesis_settings(max_examples=25)
def test_written_documents_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, corpus: SampledCorpusSettings, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    corpus = corpus.model_copy(update={"boundaries": True})
    sample = corpora.sample(corpus, rng(seed))
    for name in ("train", "validation"):
        write_text(folder / name, getattr(sample, name))
    files = {name: folder / name for name in ("train", "validation")}
    result = corpora.read(
        TextFileCorpusSettings(kind="text", topics=1, words=corpus.words, **files)
    )
    for name in files:
        read, sampled_ = getattr(result, name), getattr(sample, name)
        width = read.shape[1]  # read documents are padded to the longest
        np.testing.assert_array_equal(read, sampled_[:, :width])
        assert (sampled_[:, width:] == PAD).all()


def test_written_documents_without_boundaries_end_with_END(tmp_path: Path) -> None:
    write_text(tmp_path / "a", np.array([[4, 9, PAD], [5, 5, 5]]))
    assert (tmp_path / "a").read_text() == "0 5 END\n1 1 1 END\n"


TABLE = "word,topic\ncat,pets\ndog,pets\n"
BAD_TRAINING = {
    "unknown word": ("0 1 END\n0 6 END\n", ":2", "'6'"),
    "a negative number": ("0 -1 END\n", ":1", "'-1'"),
    "another spelling of a number": ("00 END\n", ":1", "'00'"),
    "empty line": ("0 END\n\n1 END\n", ":2", "empty line"),
    "line of spaces": ("0 END\n1 END\n  \t \n", ":3", "empty line"),
    "blank file": ("", "", "blank"),
    "file of spaces": ("\n \n", "", "blank"),
    "END missing": ("0 END\n1 2\n", ":2", "END"),
    "END in the middle": ("0 END 1 END\n", ":1", "'END'"),
    "END alone": ("0 END\n1 END\nEND\n", ":3", "at least one word"),
    "end in small letters": ("0 end\n", ":1", "END"),
}
BAD_TABLES = {
    "no header": ("cat,pets\ndog,pets\n", "", "word,topic"),
    "another header": ("topic,word\npets,cat\n", "", "word,topic"),
    "topic missing": (TABLE + "cow\n", ":4", "a word and a topic"),
    "topic empty": ("word,topic\ncat,\ndog,pets\n", ":2", "a word and a topic"),
    "word empty": (TABLE + " ,pets\n", ":4", "a word and a topic"),
    "three columns": (TABLE + "cow,farm,pets\n", ":4", "a word and a topic"),
    "blank line": ("word,topic\n\ncat,pets\ndog,pets\n", ":2", "a word and a topic"),
    "blank file": ("", "", "blank"),
}


def assert_refused(corpus: TextFileCorpusSettings, position: str, value: str) -> None:
    """Assert that the error names file, line and value in one line."""
    with pytest.raises(ValueError) as caught:
        corpora.read(corpus)
    message = str(caught.value)
    assert message.startswith(f"{position}: ")
    assert value in message
    assert "\n" not in message


@pytest.mark.parametrize(("train", "line", "value"), BAD_TRAINING.values(), ids=BAD_TRAINING)
@pytest.mark.parametrize("which", ["train", "validation"])
def test_an_error_in_a_document_names_file_and_line(
    tmp_path: Path, which: str, train: str, line: str, value: str
) -> None:
    contents = {"train": "0 END\n", "validation": "0 END\n"} | {which: train}
    assert_refused(text(tmp_path, **contents), f"{tmp_path / which}.txt{line}", value)


@pytest.mark.parametrize(("table", "line", "value"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_an_error_in_a_table_names_file_and_line(
    tmp_path: Path, table: str, line: str, value: str
) -> None:
    corpus = text(tmp_path, "cat END\n", "dog END\n", table)
    assert_refused(corpus, f"{tmp_path / 'table.csv'}{line}", value)


def test_words_that_a_table_lacks_are_unknown(tmp_path: Path) -> None:
    corpus = text(tmp_path, "cat END\ncow END\n", "dog END\n", TABLE)
    assert_refused(corpus, f"{tmp_path / 'train.txt'}:2", "'cow'")
    corpus = text(tmp_path, "cat END\n", "dog END\n", "word,topic\n")
    assert_refused(corpus, f"{tmp_path / 'train.txt'}:1", "'cat'")


def test_files_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    corpus = text(tmp_path, "0 END\n")
    (tmp_path / "validation.txt").write_bytes(b"0 \xff\xfe END\n")
    assert_refused(corpus, f"{tmp_path / 'validation.txt'}", "UTF-8")


def test_a_table_of_more_words_than_token_ids_is_refused(tmp_path: Path) -> None:
    table = "word,topic\n" + "".join(f"w{i},t{i % 2}\n" for i in range(33_000))
    corpus = text(tmp_path, "w1 w32999 END\n", "w1 END\n", table)
    with pytest.raises(ValueError, match=r"table\.csv"):
        corpora.read(corpus)


# --- the corpus as an artifact ------------------------------------------------------------------


def test_a_saved_corpus_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "corpus.safetensors"
    corpus = corpora.sample(overlap(train=30), rng())
    corpora.save(path, corpus)
    loaded = corpora.load(path)
    for name in ("train", "validation", "membership"):
        one, other = getattr(corpus, name), getattr(loaded, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_a_file_that_is_not_a_corpus_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.safetensors"
    for arrays in ({"train": np.ones(1)}, {"W_E": np.ones(1)}):
        artifacts.write_tensors(path, arrays)
        with pytest.raises(artifacts.UnreadableArtifact, match=r"corpus\.safetensors"):
            corpora.load(path)


def test_a_number_of_words_that_topics_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"words \(100\).*topics \(7\)"):
        settings.LdaCorpusSettings(kind="lda", topics=7)
