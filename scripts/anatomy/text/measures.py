"""Measure topic structure in a pretrained model: attention and inner products between words.

Pairs of words are in the classes of Li, Li & Risteski (ICML 2023, section on pretrained models):
the same word, different words with a common topic, words with topics and none in common. Words
without a topic are in no pair. Every membership (a filter, an LDA fit, a shuffled control) is
measured on the same forward pass.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from scripts.anatomy.text.word_tokens import WordTokens

CLASSES = ("same_word", "same_topic", "different_topic")
MIN_PAIRS = 100  # a mean over fewer is reported as empty
DOCUMENT_BATCH = 8
TOPIC_SET_CHUNK = 2048

Memberships = Bool[Tensor, "filters words topics"]


class NoAttention(ValueError):
    """Raised for a model that returns no attention maps."""


@dataclass(frozen=True)
class Attention:
    """Attention weights summed over pairs of a class, relative to uniform attention.

    Row 0 of the first axis counts every document once; the other rows are draws of a Poisson
    bootstrap over documents, which needs no second pass and stores no documents.

    Attributes:
        mass: Summed weights, each times the number of positions its query can attend to.
        pairs: Number of ordered pairs of positions.
        by_distance: Sums of the mean weight at each pair's distance, whatever its class.
    """

    mass: Float[np.ndarray, "replicates filters classes layers heads"]
    pairs: Float[np.ndarray, "replicates filters classes"]
    by_distance: Float[np.ndarray, "filters classes layers heads"]

    @property
    def means(self) -> Float[np.ndarray, "replicates filters classes layers heads"]:
        """Return the mean weight of each class: 1 for uniform attention, NaN for too few pairs."""
        pairs = np.where(self.pairs[:1] >= MIN_PAIRS, self.pairs, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.mass / pairs[..., None, None]

    @property
    def distance_means(self) -> Float[np.ndarray, "filters classes layers heads"]:
        """Return the means that distance alone predicts."""
        pairs = np.where(self.pairs[0] >= MIN_PAIRS, self.pairs[0], np.nan)
        return self.by_distance / pairs[..., None, None]


def ratio(
    means: Float[np.ndarray, "*any filters classes layers heads"], *, average: bool
) -> Float[np.ndarray, "..."]:
    """Return same-topic over different-topic attention, by head or of the mean over heads."""
    if average:
        means = means.mean(axis=(-2, -1), keepdims=True)
    ratios = means[..., 1, :, :] / means[..., 2, :, :]
    return ratios[..., 0, 0] if average else ratios


def attention(
    model: PreTrainedModel,
    readings: Sequence[WordTokens],
    memberships: Memberships,
    *,
    replicates: int,
    rng: np.random.Generator,
) -> Attention:
    """Return a model's attention weights over documents, summed by pair class.

    Raises:
        NoAttention: The model returns no attention maps.
    """
    documents = (
        (maps, reading.words)
        for first in range(0, len(readings), DOCUMENT_BATCH)
        for maps, reading in _read(model, readings[first : first + DOCUMENT_BATCH])
    )
    return tally(
        documents,
        memberships,
        causal=is_causal(model),
        max_length=max(len(reading.tokens) for reading in readings),
        replicates=replicates,
        rng=rng,
    )


def is_causal(model: PreTrainedModel) -> bool:
    """Return whether queries attend only to earlier positions, judged by the attention maps."""
    tokens = torch.arange(8, device=model.device)[None]
    maps = _maps(model, tokens, torch.ones_like(tokens))
    return not maps.triu(1).any()


@torch.inference_mode()
def _maps(
    model: PreTrainedModel, tokens: Int[Tensor, "docs n"], mask: Int[Tensor, "docs n"]
) -> Float[Tensor, "docs layers heads n n"]:
    """Return attention maps, queries by keys; for an encoder-decoder, those of the encoder."""
    network = model.get_encoder() if model.config.is_encoder_decoder else model
    output = network(input_ids=tokens, attention_mask=mask, output_attentions=True)
    layers = getattr(output, "attentions", None)
    if not layers or any(layer is None for layer in layers):
        raise NoAttention(f"a model of type {model.config.model_type} returns no attention maps")
    return torch.stack(layers, dim=1)


def _read(
    model: PreTrainedModel, readings: Sequence[WordTokens]
) -> Iterator[tuple[Float[Tensor, "layers heads n n"], WordTokens]]:
    """Yield the attention maps of documents run in one batch, padding removed."""
    tokens = torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(reading.tokens) for reading in readings], batch_first=True
    )
    length = torch.tensor([len(reading.tokens) for reading in readings])
    mask = (torch.arange(tokens.shape[1]) < length[:, None]).long()
    maps = _maps(model, tokens.to(model.device), mask.to(model.device))
    for of_document, n, reading in zip(maps, length.tolist(), readings, strict=True):
        yield of_document[..., :n, :n], reading


@dataclass(frozen=True)
class _Pairs:
    """The ordered pairs of one document's positions that hold words."""

    weights: Float[Tensor, "maps pairs"]  # relative to uniform attention
    classes: Float[Tensor, "filters_classes pairs"]
    different: Float[Tensor, "1 pairs"]  # whether the words differ
    distance: Int[Tensor, "pairs"]  # of the query from the key, from 0 on


def tally(
    documents: Iterable[tuple[Float[Tensor, "layers heads n n"], Int[np.ndarray, "n"]]],
    memberships: Memberships,
    *,
    causal: bool,
    max_length: int,
    replicates: int,
    rng: np.random.Generator,
) -> Attention:
    """Return attention weights summed by pair class over a stream of documents, in fixed memory.

    A document is its attention maps (queries by keys) and the number of the word at each position,
    -1 for none. With `causal`, only pairs whose key comes first count. `max_length` bounds n. The
    stream must have at least one document.
    """
    mass = pairs = weight_at = different_at = pairs_at = 0.0
    for maps, words in documents:
        of_document = _pairs(maps, torch.from_numpy(words), memberships, causal, max_length)
        times = np.concatenate([[1.0], rng.poisson(1.0, replicates)])
        mass = mass + np.multiply.outer(times, _array(of_document.classes @ of_document.weights.T))
        pairs = pairs + np.multiply.outer(times, _array(of_document.classes.sum(dim=1)))
        weight_at = weight_at + _by_distance(
            of_document.weights * of_document.different, of_document, max_length
        )
        different_at = different_at + _by_distance(of_document.different, of_document, max_length)
        pairs_at = pairs_at + _by_distance(of_document.classes, of_document, max_length)
    # the mean weight at each distance, between different words of any topics or none
    mean_at = weight_at / np.maximum(different_at, 1)
    kinds = (len(memberships), len(CLASSES))
    return Attention(
        mass.reshape(len(mass), *kinds, *maps.shape[:2]),
        pairs.reshape(len(pairs), *kinds),
        (pairs_at @ mean_at.T).reshape(*kinds, *maps.shape[:2]),
    )


def _pairs(
    maps: Float[Tensor, "layers heads n n"],
    words: Int[Tensor, "n"],
    memberships: Memberships,
    causal: bool,
    max_length: int,
) -> _Pairs:
    """Return the pairs of a document's positions: their weights, classes and distances."""
    words = words.to(maps.device)
    known = (words >= 0).nonzero()[:, 0]
    query, key = known.repeat_interleave(len(known)), known.repeat(len(known))
    kept = query > key if causal else query != key
    query, key = query[kept], key[kept]
    topics = memberships[:, words[known]].to(maps.dtype)
    has_topic = topics.any(dim=2)
    both = (has_topic[:, :, None] & has_topic[:, None]).flatten(1)[:, kept]
    share = ((topics @ topics.mT) > 0).flatten(1)[:, kept]
    same_word = words[query] == words[key]
    classes = torch.stack([both & same_word, share & ~same_word, both & ~share], dim=1)
    visible = query + 1 if causal else torch.full_like(query, len(words))
    return _Pairs(
        maps.flatten(0, 1)[:, query, key] * visible,
        classes.flatten(0, 1).to(maps.dtype),
        (~same_word)[None].to(maps.dtype),
        query - key + max_length - 1,
    )


def _by_distance(
    values: Float[Tensor, "k pairs"], pairs: _Pairs, max_length: int
) -> Float[np.ndarray, "k distances"]:
    """Return sums over the pairs at each distance."""
    sums = values.new_zeros(len(values), 2 * max_length - 1)
    return _array(sums.index_add_(1, pairs.distance, values))


def _array(sums: Tensor) -> np.ndarray:
    """Return the sums of one document in float64, in which they are added up."""
    return sums.cpu().double().numpy()


# --- embeddings ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Similarity:
    """Means over all pairs of different words of a class, by filter; NaN for too few pairs."""

    same: Float[np.ndarray, "filters"]
    different: Float[np.ndarray, "filters"]
    same_pairs: Float[np.ndarray, "filters"]
    different_pairs: Float[np.ndarray, "filters"]


def similarity(
    vectors: Float[np.ndarray, "words d_model"],
    memberships: Bool[np.ndarray, "filters words topics"],
) -> Similarity:
    """Return the exact mean inner product of different words with and without a common topic.

    The class of a pair depends on the words' topic sets alone. So the sum over all pairs is a sum
    over pairs of topic sets, without a words x words matrix. For cosines, pass unit vectors.
    """
    rows = [_similarity(vectors.astype(np.float64), member) for member in memberships]
    return Similarity(*np.array(rows).T)


def _similarity(
    vectors: Float[np.ndarray, "words d_model"], membership: Bool[np.ndarray, "words topics"]
) -> tuple[float, float, float, float]:
    held = membership.any(axis=1)
    vectors, membership = vectors[held], membership[held]
    sets, which, count = np.unique(membership, axis=0, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sets), vectors.shape[1]))
    np.add.at(sums, which.ravel(), vectors)
    own = np.square(vectors).sum()  # a word with itself
    total, pairs = np.square(sums.sum(axis=0)).sum() - own, len(vectors) * (len(vectors) - 1.0)
    shared, shared_pairs = -own, -float(len(vectors))
    for first in range(0, len(sets), TOPIC_SET_CHUNK):
        part = slice(first, first + TOPIC_SET_CHUNK)
        share = sets[part].astype(float) @ sets.T > 0
        shared += np.sum((share @ sums) * sums[part])
        shared_pairs += count[part] @ share @ count
    return (
        _mean(shared, shared_pairs),
        _mean(total - shared, pairs - shared_pairs),
        shared_pairs,
        pairs - shared_pairs,
    )


def _mean(total: float, pairs: float) -> float:
    return total / pairs if pairs >= MIN_PAIRS else float("nan")


def unit(vectors: Float[np.ndarray, "words d_model"]) -> Float[np.ndarray, "words d_model"]:
    """Return vectors scaled to length 1; a zero vector stays."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)
