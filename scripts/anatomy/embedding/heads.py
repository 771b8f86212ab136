"""A model's heads, one matrix over the vocabulary after the other, as thin factors.

W_VO = W_V W_O says which token's presence promotes which; W_QK = W_Q W_K^T which token attends to
which (Dar et al. 2023, Table 1). Neither biases nor positions take part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from torch import Tensor

from scripts.anatomy.embedding.views import ModelView

MATRICES = ("VO", "QK")


@dataclass(frozen=True)
class Head:
    """One matrix over the vocabulary, A B^T: rows are W_VO's inputs, or queries.

    Attributes:
        layer: Layer, from 0.
        head: Query head, from 0.
        matrix: "VO" or "QK".
        A: Its left factor.
        B: Its right factor.
    """

    layer: int
    head: int
    matrix: str
    A: Float[Tensor, "tokens d_head"]
    B: Float[Tensor, "tokens d_head"]


def heads(
    view: ModelView,
    read: Float[Tensor, "tokens d_model"],
    written: Float[Tensor, "tokens d_model"],
    *,
    layers: Sequence[int],
    most: int | None = None,
) -> Iterator[Head]:
    """Both matrices of the heads of some layers; `most` heads a layer, evenly spaced.

    `read` are the embeddings of the tokens that the stream is read as, and `written` those that
    what is written to it is scored against; the same in a model with tied embeddings.
    """
    for layer in layers:
        weights = view.layers[layer]
        for head in spaced(len(weights.W_Q), most):
            group = view.kv_head(head)
            W_Q, W_K = weights.W_Q[head], weights.W_K[group]
            W_V, W_O = weights.W_V[group], weights.W_O[head]
            yield Head(layer, head, "VO", read @ W_V, written @ W_O.T)
            yield Head(layer, head, "QK", read @ W_Q, read @ W_K)


def spaced(count: int, most: int | None) -> list[int]:
    """Return the numbers below `count`, or `most` of them, evenly spaced from first to last."""
    if most is None or most >= count:
        return list(range(count))
    return np.linspace(0, count - 1, most).round().astype(int).tolist()


def word_numbers(texts: Sequence[str]) -> Integer[np.ndarray, "tokens"]:
    """Return the same number for tokens that are one word but for case and spaces."""
    return np.unique([text.strip().lower() for text in texts], return_inverse=True)[1]
