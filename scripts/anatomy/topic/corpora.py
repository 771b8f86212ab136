"""Corpora with known topics: sampled from LDA and its relatives, or read from text files.

A corpus is an array of token ids with a row for each document, padded with PAD, and a table of
which word belongs to which topic. Token ids follow the released code of Li, Li & Risteski (ICML
2023): PAD 0, MASK 1, START 2, END 3, then the words in order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int16, Integer

from scripts.anatomy import artifacts
from scripts.anatomy.topic import settings

PAD, MASK, START, END = range(4)
FIRST_WORD = settings.SPECIAL_TOKENS
MAX_WORDS = settings.MAX_WORDS
MAX_LINE = 1_000_000  # characters in a line of a text file
MAX_TOKENS = 500_000_000  # in a split, padding included: one gigabyte
CHUNK = 2000  # documents drawn together; they fit in the processor's cache


@dataclass(frozen=True)
class Corpus:
    """Documents and the topics of their words.

    Attributes:
        train: Token ids of the training documents, padded with PAD.
        validation: Token ids of the held-out documents.
        membership: Whether a word belongs to a topic.
    """

    train: Int16[np.ndarray, "docs max_length"]
    validation: Int16[np.ndarray, "validation_docs max_length"]
    membership: Bool[np.ndarray, "words topics"]

    @property
    def d_vocab(self) -> int:
        """Return the number of tokens, special ones included."""
        return len(self.membership) + FIRST_WORD


def sample(corpus: settings.SampledCorpusSettings, rng: np.random.Generator) -> Corpus:
    """Return a corpus of sampled training and held-out documents."""
    topic_words, membership = _topics(corpus, rng)

    def documents(count: int) -> Int16[np.ndarray, "docs max_length"]:
        parts = [min(CHUNK, count - first) for first in range(0, count, CHUNK)]
        return np.concatenate(
            [_frame(_words(corpus, topic_words, part, rng), corpus, rng) for part in parts]
        )

    return Corpus(documents(corpus.train), documents(corpus.validation), membership)


def block_membership(words: int, topics: int) -> Bool[np.ndarray, "words topics"]:
    """Return the membership of words split into consecutive blocks of equal size, one per topic."""
    return np.repeat(np.eye(topics, dtype=bool), words // topics, axis=0)


def check_blocks(membership: Bool[np.ndarray, "words topics"]) -> None:
    """Raise ValueError unless the topics are disjoint and of equal size, as in the theorems."""
    sizes = membership.sum(axis=0)
    if (membership.sum(axis=1) != 1).any() or len(set(sizes.tolist())) > 1:
        raise ValueError("a block matrix needs disjoint topics of equal size")


def _topics(
    corpus: settings.SampledCorpusSettings, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "topics words"] | None, Bool[np.ndarray, "words topics"]]:
    """Return topic-word distributions (None: uniform on equal blocks) and the membership table."""
    if not isinstance(corpus, settings.OverlapCorpusSettings):
        return None, block_membership(corpus.words, corpus.topics)
    topic_words = rng.dirichlet(np.full(corpus.words, corpus.beta), size=corpus.topics)
    share = topic_words / topic_words.sum(axis=0)  # of a word's probability, by topic
    return topic_words, (share >= corpus.membership).T


def _words(
    corpus: settings.SampledCorpusSettings,
    topic_words: Float[np.ndarray, "topics words"] | None,
    count: int,
    rng: np.random.Generator,
) -> Int16[np.ndarray, "docs max_length"]:
    """Return the words 0, 1, ... of `count` documents of the maximum length."""
    topic = _word_topics(corpus, count, rng)
    if topic_words is None:
        v = corpus.words_per_topic
        return topic * np.int16(v) + rng.integers(v, size=topic.shape, dtype=np.int16)
    # One sorted list serves all topics: topic k's distribution function runs from k to k + 1.
    bounds = (np.cumsum(topic_words, axis=1) + np.arange(corpus.topics)[:, None]).ravel()
    position = np.searchsorted(bounds, topic + rng.random(topic.shape), side="right")
    word = position - topic.astype(np.int64) * corpus.words  # 16 bits are too few for the product
    return np.minimum(word, corpus.words - 1).astype(np.int16)


def _word_topics(
    corpus: settings.SampledCorpusSettings, count: int, rng: np.random.Generator
) -> Int16[np.ndarray, "docs max_length"]:
    """Return the topic of every word, i.i.d. within a document given its mixture."""
    shape = (count, corpus.max_length)
    if isinstance(corpus, settings.ExactCorpusSettings):
        subset = rng.permuted(np.tile(np.arange(corpus.topics, dtype=np.int16), (count, 1)), axis=1)
        index = rng.integers(corpus.tau, size=shape)
        return np.take_along_axis(subset, index, axis=1)
    mixture = rng.dirichlet(np.full(corpus.topics, corpus.alpha), size=count)
    bounds = np.cumsum(mixture, axis=1, dtype=np.float32)
    uniform = rng.random(shape, dtype=np.float32)
    topic = np.zeros(
        shape, dtype=np.min_scalar_type(corpus.topics)
    )  # the smallest type adds fastest
    for k in range(corpus.topics - 1):  # faster than a search for so few topics
        topic += uniform >= bounds[:, k, None]
    return topic.astype(np.int16)


def _frame(
    words: Int16[np.ndarray, "docs max_length"],
    corpus: settings.SampledCorpusSettings,
    rng: np.random.Generator,
) -> Int16[np.ndarray, "docs max_length_with_ends"]:
    """Cut documents to random lengths and put START and END around them where asked."""
    min_length, max_length = corpus.min_length, corpus.max_length
    length = rng.integers(min_length, max_length + 1, size=(len(words), 1))
    kept = np.arange(max_length, dtype=np.int32) < length.astype(np.int32)
    ends = int(corpus.boundaries)
    framed = np.full((len(words), max_length + 2 * ends), PAD, dtype=np.int16)
    np.copyto(framed[:, ends : ends + max_length], words + np.int16(FIRST_WORD), where=kept)
    if corpus.boundaries:
        framed[:, 0] = START
        np.put_along_axis(framed, length + 1, np.int16(END), axis=1)
    return framed


def read(corpus: settings.TextFileCorpusSettings) -> Corpus:
    """Return a corpus read from text files.

    Raises:
        ValueError: An unknown word, an empty line, a missing or misplaced END or a blank file,
            with the file and line in the message.
    """
    vocabulary, membership = _vocabulary(corpus)
    return Corpus(
        _read_documents(corpus.train, vocabulary),
        _read_documents(corpus.validation, vocabulary),
        membership,
    )


def _vocabulary(
    corpus: settings.TextFileCorpusSettings,
) -> tuple[dict[str, int], Bool[np.ndarray, "words topics"]]:
    """Return word -> number and the membership table, from the blocks or from the CSV file."""
    if corpus.table is None:
        names = map(str, range(corpus.words))
        return _numbered(names), block_membership(corpus.words, corpus.topics)
    rows = [line.split(",") for line in _lines(corpus.table)]
    if [field.strip() for field in rows[0]] != ["word", "topic"]:
        raise ValueError(f"{corpus.table}: expected word,topic in the first line")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2 or not all(field.strip() for field in row):
            raise ValueError(f"{corpus.table}:{number}: expected a word and a topic")
    pairs = [(word.strip(), topic.strip()) for word, topic in rows[1:]]
    words = _numbered(dict.fromkeys(word for word, _ in pairs))
    topics = _numbered(dict.fromkeys(topic for _, topic in pairs))
    if len(words) > MAX_WORDS:
        raise ValueError(f"{corpus.table}: {len(words)} words; at most {MAX_WORDS} are supported")
    membership = np.zeros((len(words), len(topics)), dtype=bool)
    for word, topic in pairs:
        membership[words[word], topics[topic]] = True
    return words, membership


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file; ValueError if blank, not UTF-8, or with too long a line."""
    lines = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            while line := file.readline(MAX_LINE + 1):
                lines.append(line.rstrip("\n"))
                if len(line) > MAX_LINE:
                    raise ValueError(
                        f"{path}:{len(lines)}: more than {MAX_LINE} characters in a line"
                    )
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a UTF-8 text file") from None
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path}: the file is blank")
    return lines


def _read_documents(path: Path, vocabulary: dict[str, int]) -> Int16[np.ndarray, "docs max_length"]:
    """Return the token ids of the documents, START before and END after each."""
    documents = [
        _read_document(f"{path}:{number}", line.split(), vocabulary)
        for number, line in enumerate(_lines(path), start=1)
    ]
    max_length = max(map(len, documents))
    if len(documents) * max_length > MAX_TOKENS:
        raise ValueError(
            f"{path}: {len(documents)} documents padded to {max_length} tokens do not fit; shorten "
            "the longest"
        )
    tokens = np.full((len(documents), max_length), PAD, dtype=np.int16)
    for row, document in zip(tokens, documents, strict=True):
        row[: len(document)] = document
    return tokens


def _read_document(position: str, words: list[str], vocabulary: dict[str, int]) -> list[int]:
    if not words:
        raise ValueError(f"{position}: empty line; every line must be a document")
    if words[-1] != "END" or len(words) < 2:
        raise ValueError(f"{position}: expected at least one word and then END")
    try:
        return [START, *(vocabulary[word] + FIRST_WORD for word in words[:-1]), END]
    except KeyError as unknown:
        raise ValueError(f"{position}: the word {unknown} has no topic") from None


def word_mask(
    tokens: Integer[np.ndarray, "docs max_length"],
) -> Bool[np.ndarray, "docs max_length"]:
    """Return where the tokens are words, not special tokens."""
    return tokens >= FIRST_WORD


def topic_counts(
    tokens: Integer[np.ndarray, "docs max_length"], membership: Bool[np.ndarray, "words topics"]
) -> Float[np.ndarray, "docs topics"]:
    """Return the words per topic in each document; a word of k topics counts 1/k for each."""
    share = membership / np.maximum(membership.sum(axis=1, keepdims=True), 1)
    return token_counts(tokens, len(membership) + FIRST_WORD)[:, FIRST_WORD:] @ share


def token_counts(
    tokens: Integer[np.ndarray, "docs max_length"], d_vocab: int
) -> Float[np.ndarray, "docs d_vocab"]:
    """Return how often each token occurs in each document; PAD is not counted."""
    flat = (np.arange(len(tokens))[:, None] * d_vocab + tokens)[tokens != PAD]
    counts = np.bincount(flat, minlength=len(tokens) * d_vocab).reshape(-1, d_vocab)
    return counts.astype(np.float64)


def statistics(corpus: Corpus) -> dict[str, float]:
    """Return length, distinct topics, largest topic share and topic entropy (nats) of documents."""
    counts = topic_counts(corpus.train, corpus.membership)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1)), axis=1)
    length = word_mask(corpus.train).sum(axis=1)
    return {
        "documents": len(share),
        "mean_length": float(length.mean()),
        "sd_length": float(length.std()),
        "mean_topics": float((counts > 0).sum(axis=1).mean()),
        "largest_share": float(share.max(axis=1).mean()),
        "topic_entropy": float(entropy.mean()),
    }


def save(path: str | Path, corpus: Corpus) -> None:
    """Write a corpus as safetensors."""
    artifacts.write_tensors(path, vars(corpus))


def load(path: str | Path) -> Corpus:
    """Return the corpus that `save` wrote; UnreadableArtifact if the file is not a corpus."""
    tensors: dict[str, np.ndarray] = artifacts.read_tensors(path)
    try:
        return Corpus(**tensors)
    except TypeError:
        raise artifacts.UnreadableArtifact(path, f"holds {[*tensors]}, not a corpus") from None
