"""Measures of topic structure: block means of matrices over words, and attention by pair class.

Everything is float64 numpy on weights and token counts. Pair classes are those of the paper: the
same word, different words that share a topic, and words without a common topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Integer

from scripts.anatomy.topic.corpora import FIRST_WORD, MASK, Corpus, token_counts
from scripts.anatomy.topic.settings import CompactModelSettings, TopicMeasurementSettings

if TYPE_CHECKING:
    from scripts.anatomy.topic.model import TopicTransformer  # importing torch takes seconds

CLASSES = ("same_word", "same_topic", "different_topic")
CHUNK = 10  # documents whose pairs of positions fit in the processor's cache


@dataclass(frozen=True)
class TokenView:
    """A compact model as maps between tokens.

    Attributes:
        embedding: Z, each token's embedding as attention sees it.
        value: What attending to a token (column) adds to each output (row): W_U W_V Z.
        scores: Attention scores before the softmax; keys by queries.
        norms: Frobenius norms of what is trained, and of W_K^T W_Q.
    """

    embedding: Float[np.ndarray, "d_model d_vocab"]
    value: Float[np.ndarray, "d_vocab d_vocab"]
    scores: Float[np.ndarray, "d_vocab d_vocab"]
    norms: dict[str, float]


def view(weights: Mapping[str, np.ndarray], model: CompactModelSettings) -> TokenView:
    """Return a compact model's state (parameters and frozen parts) as maps between tokens."""
    W = {name: array.astype(np.float64) for name, array in weights.items()}
    Z = W["W_E"]
    if model.input_norm:
        raw = Z.T + W["token_type"]
        centred = raw - raw.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-12)
        Z = (scaled * W["norm.weight"] + W["norm.bias"]).T
    head = {"identity": np.eye(len(Z)), "tied": W["W_E"].T, "trained": W.get("W_U")}[model.head]
    scores = np.zeros((Z.shape[1], Z.shape[1]))
    norms = {
        name: float(np.linalg.norm(W[name])) for name in ("W_E", "W_V", "W_K", "W_Q") if name in W
    }
    if model.attention == "trained":
        key_query = W["W_K"].T @ W["W_Q"]
        norms["W_KQ"] = float(np.linalg.norm(key_query))
        scores = Z.T @ key_query @ Z / np.sqrt(len(W["W_K"]))
    return TokenView(Z, head @ W["W_V"] @ Z, scores, norms)


def view_of(model: "TopicTransformer") -> TokenView:
    """Return a model in memory as maps between tokens."""
    return view({k: t.numpy() for k, t in model.state_dict().items()}, model.settings)


def words(matrix: Float[np.ndarray, "d_vocab d_vocab"]) -> Float[np.ndarray, "words words"]:
    """Return the rows and columns of words from a matrix over tokens."""
    return matrix[FIRST_WORD:, FIRST_WORD:]


def gram(
    vectors: Float[np.ndarray, "dims items"], *, cosine: bool = False
) -> Float[np.ndarray, "items items"]:
    """Return inner products, or cosines, between the columns."""
    if cosine:
        vectors = vectors / np.linalg.norm(vectors, axis=0)
    return vectors.T @ vectors


def pair_classes(
    membership: Bool[np.ndarray, "words topics"],
) -> Bool[np.ndarray, "classes words words"]:
    """Return which class of `CLASSES` word pairs are in; words without a topic are in no class."""
    same_word = np.eye(len(membership), dtype=bool)
    has_topic = membership.any(axis=1)
    both = has_topic[:, None] & has_topic
    share = membership.astype(float) @ membership.T.astype(float) > 0
    return np.stack([same_word & both, share & ~same_word, both & ~share])


def block_means(
    matrix: Float[np.ndarray, "words words"], membership: Bool[np.ndarray, "words topics"]
) -> dict[str, float]:
    """Return the mean entry on the diagonal, within topics with and without it, and across topics.

    `contrast` is the mean within topics, diagonal included, minus the mean across: the number
    that Theorems 1 and 2 determine. `contrast_off_diagonal` leaves the diagonal out. `separated` is
    the share of pairs (one within a topic off the diagonal, one across) in which the first is
    larger: 0.5 when there is no topic structure, whatever the scale.
    """
    diagonal, within, across = pair_classes(membership)
    same = float(matrix[within].mean())
    with_diagonal = float(matrix[diagonal | within].mean())
    different = float(matrix[across].mean())
    return {
        "diagonal": float(matrix[diagonal].mean()),
        "same": same,
        "same_with_diagonal": with_diagonal,
        "different": different,
        "contrast": with_diagonal - different,
        "contrast_off_diagonal": same - different,
        "separated": separated(matrix[within], matrix[across]),
    }


def separated(above: Float[np.ndarray, "m"], below: Float[np.ndarray, "n"]) -> float:
    """Return the share of pairs in which `above` exceeds `below`; ties count half."""
    below = np.sort(below)
    left = np.searchsorted(below, above, side="left")
    right = np.searchsorted(below, above, side="right")
    return float((left + right).mean() / (2 * len(below)))


def mask_column(value: Float[np.ndarray, "d_vocab d_vocab"]) -> float:
    """Return what attending to MASK adds to a word's output, on average."""
    return float(value[FIRST_WORD:, MASK].mean())


def attention_from_counts(
    scores: Float[np.ndarray, "keys queries"],
    counts: Float[np.ndarray, "docs d_vocab"],
    membership: Bool[np.ndarray, "words topics"],
    *,
    reference_length: int,
) -> dict[str, float]:
    """Return the mean attention weight by class of position pairs, from token counts.

    For position-free attention: with S = exp(scores), document d's query token q puts
    n_dk S_kq / sum_j n_dj S_jq on key token k. Weights are multiplied by (document length /
    `reference_length`). Pairs are ordered. Special tokens are attended to, but are in no class.
    """
    S = np.exp(np.maximum(scores - scores.max(axis=0), -700))  # a lower bound avoids 0 / 0
    length = counts.sum(axis=1) / reference_length
    per_query = counts / (counts @ S)  # count of the query over its softmax's denominator
    classes = _over_tokens(pair_classes(membership), len(scores))
    mass = [np.sum(length[:, None] * per_query * (counts @ (S * C))) for C in classes]
    pairs = [np.sum((counts @ C) * counts) for C in classes]
    return _class_means(np.array(mass), np.array(pairs))


def held_out_attention(
    view: TokenView,
    corpus: Corpus,
    settings: TopicMeasurementSettings,
    *,
    documents: int | None = None,
) -> dict[str, float]:
    """Return `attention_from_counts` on held-out documents, cut as the settings specify."""
    tokens = corpus.validation[: documents or settings.documents, : settings.max_length]
    return attention_from_counts(
        view.scores,
        token_counts(tokens, corpus.d_vocab),
        corpus.membership,
        reference_length=settings.reference_length,
    )


def attention_from_maps(
    maps: Float[np.ndarray, "docs heads queries keys"],
    tokens: Integer[np.ndarray, "docs max_length"],
    membership: Bool[np.ndarray, "words topics"],
    *,
    reference_length: int,
) -> list[dict[str, float]]:
    """Return the mean attention weight by class for every head, from maps over positions.

    Documents are padded with PAD. Classes are computed by products of topic indicators, means by
    one product with the maps.
    """
    heads = maps.shape[1]
    length = (tokens != 0).sum(axis=1) / reference_length
    mass, pairs = np.zeros((heads, len(CLASSES))), np.zeros(len(CLASSES))
    for first in range(0, len(tokens), CHUNK):
        part = slice(first, first + CHUNK)
        classes = position_classes(tokens[part], membership)
        flat = classes.reshape(len(classes), len(CLASSES), -1).astype(maps.dtype)
        per_document = maps[part].reshape(len(flat), heads, -1) @ flat.transpose(0, 2, 1)
        mass += np.einsum("dhc,d->hc", per_document, length[part], dtype=np.float64)
        pairs += flat.sum(axis=2).sum(axis=0)
    return [_class_means(of_head, pairs) for of_head in mass]


def position_classes(
    tokens: Integer[np.ndarray, "docs max_length"], membership: Bool[np.ndarray, "words topics"]
) -> Bool[np.ndarray, "docs classes max_length max_length"]:
    """Return the pair classes between the positions of each document."""
    indicator = np.zeros((membership.shape[1], len(membership) + FIRST_WORD), dtype=np.float32)
    indicator[:, FIRST_WORD:] = membership.T
    topics = indicator.T[tokens]
    share = topics @ topics.transpose(0, 2, 1) > 0
    same_word = (tokens[:, :, None] == tokens[:, None, :]) & share
    has_topic = topics.any(axis=2)
    different = has_topic[:, :, None] & has_topic[:, None, :] & ~share
    return np.stack([same_word, share & ~same_word, different], axis=1)


def _over_tokens(
    classes: Bool[np.ndarray, "classes words words"], d_vocab: int
) -> Float[np.ndarray, "classes d_vocab d_vocab"]:
    padded = np.zeros((len(classes), d_vocab, d_vocab))
    padded[:, FIRST_WORD:, FIRST_WORD:] = classes
    return padded


def _class_means(
    mass: Float[np.ndarray, "classes"], pairs: Float[np.ndarray, "classes"]
) -> dict[str, float]:
    """Return means by class, and same topic over different topic."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means = mass / pairs
        ratio = means[1] / means[2]
    return dict(zip(CLASSES, map(float, means), strict=True)) | {"ratio": float(ratio)}


def attention_ratio(
    scores: Float[np.ndarray, "d_vocab d_vocab"], membership: Bool[np.ndarray, "words topics"]
) -> float:
    """Return Theorem 3's R: a query word's attention to its topic over that to another.

    R = [c1 + (v - 1) c2] / (v c3), with c1, c2 and c3 the mean weights exp(s) on the same word,
    on other words of its topic and on words of other topics, averaged over query words. A word
    without topic, or with all topics, has no R.
    """
    weight = np.exp(words(scores) - words(scores).max(axis=0))
    diagonal, within, across = pair_classes(membership)
    same = diagonal | within
    queries = same.any(axis=0) & across.any(axis=0)
    own, other = (
        np.where(pairs, weight, 0).sum(axis=0)[queries] / pairs.sum(axis=0)[queries]
        for pairs in (same, across)
    )
    return float((own / other).mean())


def crossing(
    steps: Integer[np.ndarray, "checkpoints"],
    norm: Float[np.ndarray, "checkpoints"],
    *,
    share: float = 0.8,
    by: int = 1000,
) -> float:
    """Return the step at which a norm reaches `share` of its value at step `by`, interpolated."""
    target = share * np.interp(by, steps, norm)
    if target <= 0:  # it has not grown at all
        return float("nan")
    if np.isnan(target):
        return float(target)  # the run diverged
    index = int(np.argmax(norm >= target))
    if index == 0:
        return float(steps[0])
    return float(np.interp(target, norm[index - 1 : index + 1], steps[index - 1 : index + 1]))
