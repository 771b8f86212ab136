"""Fit topics to natural text: gensim's dictionary, tf-idf and online LDA, kept as plain arrays.

The steps are those of the released code of Li, Li & Risteski (ICML 2023): a dictionary without
the rarest and the most frequent words, tf-idf weights on disk in Matrix Market format, LDA on
them. Each reads a stream, so that memory does not grow with the corpus. A bag is one document in
gensim's form: pairs of a word's number and its weight.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import gensim.corpora
import numpy as np
from gensim.corpora import MmCorpus
from gensim.matutils import MmReader
from gensim.models import CoherenceModel, LdaModel, LdaMulticore, TfidfModel
from gensim.parsing.preprocessing import STOPWORDS
from jaxtyping import Float, Integer
from scipy.special import digamma

from scripts.anatomy.artifacts import check_last_line, reading, writing
from scripts.anatomy.text.settings import DictionarySettings, LdaSettings
from scripts.anatomy.text.words import tokens

Bag = list[tuple[int, float]]


@dataclass(frozen=True)
class Topics:
    """A fitted LDA with the dictionary it was fitted to.

    Attributes:
        words: The dictionary, in the order of the arrays.
        document_frequency: Number of documents of the corpus that contain each word.
        documents: Number of documents of the corpus.
        tfidf: Whether bags hold tf-idf weights rather than counts.
        posterior: Parameters lambda of the Dirichlet posterior over each topic's words.
        alpha: Prior over a document's topics.
        eta: Prior over a topic's words.
    """

    words: tuple[str, ...]
    document_frequency: Integer[np.ndarray, "words"]
    documents: int
    tfidf: bool
    posterior: Float[np.ndarray, "topics words"]
    alpha: Float[np.ndarray, "topics"]
    eta: Float[np.ndarray, "words"]

    @property
    def topic_words(self) -> Float[np.ndarray, "topics words"]:
        """Return E[beta], each topic's distribution over words; rows sum to one."""
        posterior = self.posterior.astype(np.float64)
        return posterior / posterior.sum(axis=1, keepdims=True)

    @property
    def term_weights(self) -> Float[np.ndarray, "topics words"]:
        """Return exp(E[log beta]), as gensim's `get_term_topics` without its cut at 0.01."""
        posterior = self.posterior.astype(np.float64)
        return np.exp(digamma(posterior) - digamma(posterior.sum(axis=1, keepdims=True)))


def dictionary(documents: Iterable[str], settings: DictionarySettings) -> gensim.corpora.Dictionary:
    """Return the words that LDA sees, numbered, with their document frequencies.

    Raises:
        ValueError: No word passes the cut-offs.
    """
    unwanted = STOPWORDS if settings.stop_words else frozenset()
    words = gensim.corpora.Dictionary(
        [
            word
            for word in tokens(text)
            if len(word) >= settings.min_word_length and word not in unwanted
        ]
        for text in documents
    )
    distinct = len(words)
    words.filter_extremes(settings.no_below, settings.no_above, settings.keep_n)
    if not words:
        raise ValueError(
            f"no_below: {settings.no_below} and no_above: {settings.no_above} remove all "
            f"{distinct} words of {words.num_docs} documents"
        )
    return words


def bags(
    documents: Iterable[str], words: gensim.corpora.Dictionary, *, tfidf: bool
) -> Iterator[Bag]:
    """Yield counts, or normalised tf-idf weights, of each document's dictionary words."""
    counts = (words.doc2bow(tokens(text)) for text in documents)
    if not tfidf:
        return counts
    weigh = TfidfModel(dictionary=words)
    return (weigh[bag] for bag in counts)


def save_bags(path: Path, stream: Iterable[Bag]) -> None:
    """Write bags as a Matrix Market file, one at a time."""
    with writing(path) as temporary:
        MmCorpus.save_corpus(str(temporary), stream)


class _Bags(MmCorpus):
    """The bags in a file; ignores the index beside it, which gensim would unpickle."""

    def __init__(self, path: str) -> None:
        self.index = self.length = None
        MmReader.__init__(self, path)


def load(dictionary: Path, bags: Path) -> tuple[gensim.corpora.Dictionary, MmCorpus]:
    """Return a stored dictionary and bags of its words, which are read from disk on every pass.

    gensim accepts a truncated file, so all entries are counted here.

    Raises:
        UnreadableArtifact: A file is missing or damaged.
    """
    with reading(dictionary, "a dictionary"):
        check_last_line(dictionary)
        words = gensim.corpora.Dictionary.load_from_text(str(dictionary))
        if sorted(words.dfs) != list(range(len(words))):
            raise ValueError("words are missing")
    with reading(bags, "bags of words"):
        check_last_line(bags)
        corpus = _Bags(str(bags))
        entries = 0
        for bag in corpus:
            entries += len(bag)
            if not all(0 <= number < len(words) for number, _ in bag):
                raise ValueError(f"the bags have words that are not in {dictionary}")
        if entries != corpus.num_nnz or not corpus.num_docs:
            raise ValueError(f"expected {corpus.num_nnz} entries, got {entries}")
    return words, corpus


def fit(
    corpus: Iterable[Bag],
    words: gensim.corpora.Dictionary,
    settings: LdaSettings,
    *,
    seed: int,
) -> Topics:
    """Return topics fitted by LDA to bags, which are read once a pass."""
    same_names = {"passes", "chunksize", "offset", "decay", "iterations", "alpha", "eta"}
    shared = settings.model_dump(include=same_names)
    shared |= {"num_topics": settings.topics, "id2word": words, "eval_every": None}
    shared["random_state"] = _random_state(seed)
    if settings.workers == 1:
        model = LdaModel(corpus, update_every=settings.update_every, **shared)
    else:
        batch = settings.update_every == 0
        model = LdaMulticore(corpus, workers=settings.workers, batch=batch, **shared)
    return Topics(
        words=tuple(words[number] for number in range(len(words))),
        document_frequency=np.array([words.dfs[number] for number in range(len(words))]),
        documents=words.num_docs,
        tfidf=settings.tfidf,
        posterior=model.state.get_lambda(),
        alpha=model.alpha,
        eta=model.eta,
    )


def top_words(topics: Topics, count: int = 10) -> list[list[str]]:
    """Return each topic's most likely words, the likeliest first."""
    order = np.argsort(-topics.posterior, axis=1, kind="stable")[:, :count]
    return [[topics.words[number] for number in row] for row in order]


def coherence(
    topics: Topics, corpus: Iterable[Bag], *, count: int = 10
) -> Float[np.ndarray, "topics"]:
    """Return each topic's u_mass coherence (Mimno et al. 2011) on the corpus.

    The mean over pairs of top words of log P(a document with the rarer word has the other): 0 if
    they always occur together, and lower the less they do.
    """
    model = CoherenceModel(
        topics=top_words(topics, count),
        corpus=corpus,
        dictionary=_dictionary(topics),
        coherence="u_mass",
        processes=1,  # more would each start an interpreter
    )
    return np.array(model.get_coherence_per_topic())


def topic_bags(topics: Topics, documents: Iterable[str]) -> list[Bag]:
    """Return bags of documents, weighted as those that the topics were fitted to."""
    return list(bags(documents, _dictionary(topics), tfidf=topics.tfidf))


def mixtures(
    topics: Topics, documents: Iterable[str], *, seed: int
) -> Float[np.ndarray, "docs topics"]:
    """Return the posterior mean of each document's topic proportions; rows sum to one."""
    gamma, _ = _model(topics, seed).inference(topic_bags(topics, documents))
    gamma = gamma.astype(np.float64)
    return gamma / gamma.sum(axis=1, keepdims=True)


def bound(topics: Topics, documents: Iterable[str], *, seed: int) -> float:
    """Return the variational bound on the log likelihood, in nats per unit of weight.

    The unit is one word for counts; bounds of tf-idf and of counts cannot be compared.
    exp(-bound) is the perplexity. The cost of the topics themselves is spread over as many
    documents as the fitted corpus has.
    """
    model, held = _model(topics, seed), topic_bags(topics, documents)
    return float(model.log_perplexity(held, total_docs=topics.documents))


def to_arrays(topics: Topics) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return topics as the arrays and the text metadata of a safetensors file."""
    names = ("document_frequency", "posterior", "alpha", "eta")
    rest = {name: getattr(topics, name) for name in ("words", "documents", "tfidf")}
    return (
        {name: getattr(topics, name) for name in names},
        {name: json.dumps(value, ensure_ascii=False) for name, value in rest.items()},
    )


def from_arrays(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Topics:
    """Return the topics that `to_arrays` converted."""
    rest = {name: json.loads(value) for name, value in metadata.items()}
    return Topics(words=tuple(rest.pop("words")), **rest, **arrays)


def _dictionary(topics: Topics) -> gensim.corpora.Dictionary:
    """Return the dictionary that the topics were fitted with."""
    words = gensim.corpora.Dictionary()
    words.token2id = {word: number for number, word in enumerate(topics.words)}
    words.dfs = dict(enumerate(topics.document_frequency.tolist()))
    words.num_docs = topics.documents
    return words


def _model(topics: Topics, seed: int) -> LdaModel:
    """Return a gensim model with the posterior of the topics."""
    model = LdaModel(
        id2word=dict(enumerate(topics.words)),
        num_topics=len(topics.alpha),
        alpha=topics.alpha,
        eta=topics.eta,
        random_state=_random_state(seed),
    )
    model.state.sstats = topics.posterior - topics.eta  # gensim adds the prior to it
    model.sync_state()
    return model


def _random_state(seed: int) -> np.random.RandomState:
    """Return a generator of the kind that gensim expects, from a seed of any size."""
    return np.random.RandomState(np.random.PCG64(seed))
