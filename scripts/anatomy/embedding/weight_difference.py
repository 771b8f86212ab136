"""What fine-tuning changes, read in vocabulary space (section 4.4 and Appendix D of the paper).

The difference D of every parameter, after less before, has the groups and rows of the parameter
itself, and is read with the embedding of before. A number says how readable it is: of the top
tokens of a row the share that are words of sentiment, and of the row's two ends (D and -D), whose
sign means nothing, the end with the larger share. Controls are read in the same way: rows of D with
random signs of their coordinates, normal vectors, and the same rows of the parameter before.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from transformers import PreTrainedModel

from scripts.anatomy import seeding
from scripts.anatomy.embedding import parameters
from scripts.anatomy.embedding.parameters import WRITTEN, output_embedding
from scripts.anatomy.embedding.projection import Extremes, extremes
from scripts.anatomy.embedding.views import ModelView, view

CONTROLS = ("signs", "random", "before")


def of(model: PreTrainedModel, after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """After less before, of the named parameters of a model's base."""
    before = dict(model.base_model.named_parameters())
    return {name: tensor - before[name].detach() for name, tensor in after.items()}


def seen(model: PreTrainedModel, differences: Mapping[str, Tensor]) -> ModelView:
    """Differences as a view of the model; what did not change is 0, and so is the embedding."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in other.base_model.named_parameters():
            parameter.copy_(differences.get(name, torch.zeros_like(parameter)))
    return view(other)


class Rows(NamedTuple):
    """Some vectors of one layer and group.

    Attributes:
        layer: The layer; -1 for the classifier.
        group: The group of parameters.
        head: Query or key head of each; -1 where there are none.
        index: Its number within the head or the feed-forward block.
        D: The differences.
        before: The same vectors before.
        E: What they are read with, tokens as rows.
    """

    layer: int
    group: str
    head: Integer[np.ndarray, "n"]
    index: Integer[np.ndarray, "n"]
    D: Float[Tensor, "n d_model"]
    before: Float[Tensor, "n d_model"]
    E: Float[Tensor, "d_vocab d_model"]


def groups(before: ModelView, D: ModelView) -> Iterator[Rows]:
    """Yield all vectors of the layers and groups that have changed."""
    for layer, (old, new) in enumerate(zip(before.layers, D.layers, strict=True)):
        for group, rows in parameters.groups(new).items():
            if not bool(rows.any()):
                continue
            heads, n = (len(rows), rows.shape[1]) if rows.ndim == 3 else (1, len(rows))
            head = np.repeat(np.arange(heads), n) if rows.ndim == 3 else np.full(n, -1)
            E = output_embedding(before) if group in WRITTEN else before.W_E
            width = rows.shape[-1]
            yield Rows(
                layer, group, head, np.tile(np.arange(n), heads),
                rows.reshape(-1, width), parameters.groups(old)[group].reshape(-1, width), E,
            )  # fmt: skip


def classifier_rows(
    before: ModelView, D: Float[Tensor, "labels d_model"], start: Float[Tensor, "labels d_model"]
) -> Rows:
    """Return the rows of the linear layer, one a label, as a group of their own."""
    n = len(D)
    return Rows(-1, "classifier", np.full(n, -1), np.arange(n), D, start, output_embedding(before))


def chosen(rows: Rows, places: Integer[np.ndarray, "n"]) -> Rows:
    """Some of the vectors."""
    at = torch.from_numpy(np.asarray(places)).to(rows.D.device)
    return rows._replace(
        head=rows.head[places], index=rows.index[places], D=rows.D[at], before=rows.before[at]
    )


def drawn(rows: Rows, most: int, seed: int) -> Rows:
    """As many vectors at random."""
    if len(rows.D) <= most:
        return rows
    rng = seeding.numpy_generator(seed, "vectors", rows.layer, rows.group)
    return chosen(rows, np.sort(rng.choice(len(rows.D), most, replace=False)))


def largest(rows: Rows, most: int) -> Rows:
    """Return the vectors that changed most, most first."""
    return chosen(rows, np.argsort(-rows.D.norm(dim=1).cpu().numpy(), kind="stable")[:most])


def lexicon_shares(
    rows: Rows,
    *,
    inside: Bool[np.ndarray, "d_vocab"],
    allowed: Bool[Tensor, "d_vocab"],
    k: int,
    seed: int,
) -> dict[str, float]:
    """Return the mean share of sentiment words at a vector's better end, for D and its controls.

    `both_ends` is the mean share of both ends of D, and `base` that of all allowed tokens.
    """
    draw = seeding.torch_generator(seed, "controls", rows.layer, rows.group)
    signs = torch.randint(0, 2, rows.D.shape, generator=draw).mul(2).sub(1).to(rows.D)
    random = torch.randn(rows.D.shape, generator=draw).to(rows.D)
    kinds = {"D": rows.D, "signs": rows.D * signs, "random": random, "before": rows.before}
    at_ends = {
        name: shares(extremes(vectors, rows.E, k=k, allowed=allowed), inside)
        for name, vectors in kinds.items()
    }
    best = {name: float(np.max(ends, axis=0).mean()) for name, ends in at_ends.items()}
    return best | {
        "both_ends": float(np.mean(at_ends["D"])),
        "base": float(inside[allowed.cpu().numpy()].mean()),
    }


def shares(top: Extremes, inside: Bool[np.ndarray, "d_vocab"]) -> Float[np.ndarray, "ends vectors"]:
    """Return the share of the tokens at either end of each vector that are inside."""
    return np.stack([inside[ids.numpy()].mean(axis=1) for ids in (top.ids_high, top.ids_low)])
