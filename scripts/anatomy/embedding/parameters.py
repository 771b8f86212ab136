"""The parameter vectors of a model, group by group: what the index holds the top tokens of.

Groups are named as in the paper: K (or K_gate and K_up, where one gates the other) and V, and the
sub-heads, which are the columns of W_Q, W_K and W_V and the rows of W_O within each head. Neither
biases nor norms take part. Beyond the paper there are singular directions of the two products that
a head computes, W_V W_O and W_Q W_K^T, since these, unlike sub-heads, do not depend on the basis
that training happened to choose inside the head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from scripts.anatomy.embedding.index import TopLists
from scripts.anatomy.embedding.projection import dual, extremes
from scripts.anatomy.embedding.settings import ReadingSettings
from scripts.anatomy.embedding.views import LayerView, ModelView, fold_norms

WRITTEN = ("V", "W_O", "VO_out")  # what is added to the stream; the rest is compared with it


def read_as(model: ModelView, reading: ReadingSettings) -> ModelView:
    """Return the model with its parameters as they are to be read.

    With the pseudo-inverse, what is compared with the stream is replaced by its dual, of which the
    projection with E is the exact one (Table 1 of the paper).
    """
    if reading.fold_norms:
        model = fold_norms(model)
    if reading.inverse == "transpose":
        return model
    d_model = model.W_E.shape[1]
    identity = torch.eye(d_model, dtype=torch.float64, device=model.W_E.device)
    inverse = dual(identity, model.W_E)  # (E E^T)^-1, once for all
    return replace(model, layers=[_dual_layer(layer, inverse) for layer in model.layers])


def _dual_layer(layer: LayerView, inverse: Float[Tensor, "d_model d_model"]) -> LayerView:
    def of(columns: Float[Tensor, "*heads d_model n"]) -> Float[Tensor, "*heads d_model n"]:
        return (inverse @ columns.double()).to(columns.dtype)

    return replace(
        layer,
        K={name: of(rows.T).T for name, rows in layer.K.items()},
        W_Q=of(layer.W_Q),
        W_K=of(layer.W_K),
        W_V=of(layer.W_V),
    )


def output_embedding(model: ModelView) -> Float[Tensor, "d_vocab d_model"]:
    """Return what is written to the stream is read with: W_U, which in a tied model is W_E."""
    return model.W_E if model.W_U is None else model.W_U


def parameter_lists(
    model: ModelView,
    *,
    k: int,
    layers: Sequence[int] | None = None,
    allowed: Bool[Tensor, "d_vocab"] | None = None,
    directions: int = 0,
) -> Iterator[tuple[int, str, TopLists]]:
    """Yield the top k tokens of every parameter vector, layer by layer and group by group.

    What is compared with the stream is read with W_E, what is written to it with W_U; the paper's
    models have them tied. All `layers` by default; `allowed` tokens are as for `extremes`;
    `directions` is how many singular directions of each product of a head are read.
    """
    for number in range(len(model.layers)) if layers is None else layers:
        layer = model.layers[number]
        vectors = groups(layer)
        if directions:
            vectors |= singular_directions(layer, directions)
        for group, rows in vectors.items():
            E = output_embedding(model) if group in WRITTEN else model.W_E
            yield number, group, _lists(rows, E, k, allowed)


def groups(layer: LayerView) -> dict[str, Float[Tensor, "*heads n d_model"]]:
    """Return the vectors of every group of a layer as rows: keys, values, sub-heads."""
    return feed_forward(layer) | sub_heads(layer)


def feed_forward(layer: LayerView) -> dict[str, Float[Tensor, "d_ff d_model"]]:
    """Keys and values, one a row."""
    keys = {"K" if name == "key" else f"K_{name}": rows for name, rows in layer.K.items()}
    return keys | {"V": layer.V}


def sub_heads(layer: LayerView) -> dict[str, Float[Tensor, "heads d_head d_model"]]:
    """Return columns of W_Q, W_K, W_V and rows of W_O, by query head (W_K, W_V: by key head)."""
    return {"W_Q": layer.W_Q.mT, "W_K": layer.W_K.mT, "W_V": layer.W_V.mT, "W_O": layer.W_O}


def singular_directions(layer: LayerView, n: int) -> dict[str, Float[Tensor, "heads n d_model"]]:
    """Return the n leading singular directions of each head's products, scaled by their values.

    VO_in is what attention reads and VO_out what it then writes; QK_query and QK_key are the two
    sides of the scores. The sign that the two sides of a direction share is free: the largest
    coordinate of the first is made positive.
    """
    shared = len(layer.W_Q) // len(layer.W_K)
    W_K, W_V = (matrix.repeat_interleave(shared, dim=0) for matrix in (layer.W_K, layer.W_V))
    VO_in, VO_out = _directions(W_V, layer.W_O, n)
    QK_query, QK_key = _directions(layer.W_Q, W_K.mT, n)
    return {"VO_in": VO_in, "VO_out": VO_out, "QK_query": QK_query, "QK_key": QK_key}


def _directions(
    left: Float[Tensor, "heads d_model d_head"],
    right: Float[Tensor, "heads d_head d_model"],
    n: int,
) -> list[Float[Tensor, "heads n d_model"]]:
    """Singular directions of left @ right through its factors, which are thin."""
    Q_left, R_left = torch.linalg.qr(left)
    Q_right, R_right = torch.linalg.qr(right.mT)
    U, S, Vh = torch.linalg.svd(R_left @ R_right.mT)
    sides = [(Q @ part * S[:, None, :])[..., :n].mT for Q, part in ((Q_left, U), (Q_right, Vh.mT))]
    biggest = sides[0].abs().argmax(dim=-1, keepdim=True)
    sign = sides[0].gather(-1, biggest).sign()
    return [side * sign for side in sides]


def _lists(
    vectors: Float[Tensor, "*heads n d_model"],
    W_E: Float[Tensor, "d_vocab d_model"],
    k: int,
    allowed: Bool[Tensor, "d_vocab"] | None,
) -> TopLists:
    heads, n = (len(vectors), vectors.shape[1]) if vectors.ndim == 3 else (1, len(vectors))
    rows = vectors.reshape(-1, vectors.shape[-1])
    top = extremes(rows, W_E, k=k, allowed=allowed)
    head = torch.arange(heads).repeat_interleave(n) if vectors.ndim == 3 else torch.full((n,), -1)
    return TopLists(
        head=head.numpy(),
        index=torch.arange(n).repeat(heads).numpy(),
        norm=rows.float().norm(dim=1).cpu().numpy(),
        **{name: part.numpy() for name, part in top._asdict().items()},
    )
