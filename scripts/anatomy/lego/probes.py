"""Scores of attention heads, and linear probes of every layer.

Head scores (association and manipulation in the paper's terms) need the attention maps and tokens
of any model. Layer probes are linear classifiers of a variable's value on the hidden states at the
variables. They are fitted in closed form from sums over sentences, so that all layers and positions
take little more than one forward pass, and no hidden state is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from scripts.anatomy.lego_attention import partners

WINDOW = 2  # positions to each side in the neighbourhood of manipulation
BATCH_SIZE = 50  # sentences

States = tuple[
    Float[Tensor, "sentences layers positions d_model"], Int64[Tensor, "sentences positions"]
]


@dataclass(frozen=True)
class HeadScores:
    """Mean attention mass over queries, for every head of every layer.

    Attributes:
        association: Mass on the other positions of the query's token, over queries that have any.
        association_on_variables: `association` over queries that are variables.
        manipulation: Mass on the query's position and two positions to each side.
        best_offset: The offset from the query with the largest mean mass.
        best_offset_mass: That mass; queries without a key at the offset count as 0.
    """

    association: Float[np.ndarray, "layers heads"]
    association_on_variables: Float[np.ndarray, "layers heads"]
    manipulation: Float[np.ndarray, "layers heads"]
    best_offset: Int64[np.ndarray, "layers heads"]
    best_offset_mass: Float[np.ndarray, "layers heads"]


@torch.inference_mode()
def attention_maps(
    model: nn.Module, tokens: Int64[Tensor, "sentences length"]
) -> Iterator[Float[Tensor, "sentences layers heads length length"]]:
    """Yield the attention maps of a model of `models.py`, some sentences at a time."""
    for part in tokens.split(BATCH_SIZE):
        yield model.read(part, maps=True).maps


def head_scores(
    maps: Iterable[Float[Tensor, "sentences layers heads length length"]],
    tokens: Int64[Tensor, "sentences length"],
    variables: Int64[Tensor, "letters"],
) -> HeadScores:
    """Return the scores of every head from the maps of consecutive sentences.

    Args:
        maps: Attention weights in batches.
        tokens: The sentences of all batches.
        variables: The tokens that are variables.

    Raises:
        ValueError: In no sentence does a token, or a variable, occur twice.
    """
    total, on_partners, queries = 0.0, 0.0, 0.0
    first = 0
    for part in maps:
        own = tokens[first : first + len(part)].to(part.device)
        first += len(part)
        same = partners(own)
        asking = torch.stack([same.any(dim=2), same.any(dim=2) & torch.isin(own, variables)])
        mass = torch.einsum("slhij,sij->slhi", part, same.to(part.dtype)).double()
        on_partners += torch.einsum("slhi,ksi->klh", mass, asking.double()).cpu().numpy()
        queries += asking.sum(dim=(1, 2)).cpu().numpy()
        total += part.double().sum(dim=0).cpu().numpy()
    for asked, name in zip(queries, ("token", "variable"), strict=True):
        if not asked:
            raise ValueError(f"no {name} occurs twice in a sentence: association is undefined")
    mean = total / first
    length = mean.shape[-1]
    offsets = np.arange(-(length - 1), length)
    by_offset = np.stack([np.trace(mean, o, 2, 3) for o in offsets], axis=-1) / length
    every, of_variables = on_partners / queries[:, None, None]
    return HeadScores(
        association=every,
        association_on_variables=of_variables,
        manipulation=by_offset[..., np.abs(offsets) <= WINDOW].sum(axis=-1),
        best_offset=offsets[by_offset.argmax(axis=-1)],
        best_offset_mass=by_offset.max(axis=-1),
    )


@torch.inference_mode()
def states(
    model: nn.Module,
    tokens: Int64[Tensor, "sentences length"],
    indices: Int64[Tensor, "sentences positions"],
    values: Int64[Tensor, "sentences positions"],
    *,
    batch_size: int = BATCH_SIZE,
    **options: int,
) -> Iterator[States]:
    """Yield the hidden states of all layers at the variables, and the values, in batches."""
    split = (array.split(batch_size) for array in (tokens, indices, values))
    for some, where, answers in zip(*split, strict=True):
        yield model.read(some, where, **options).hidden, answers


@torch.inference_mode()
def fit_probes(
    parts: Iterable[States], *, classes: int, shared: bool = True, ridge: float = 1e-4
) -> Float[Tensor, "layers positions inputs classes"]:
    """Fit linear classifiers of the value: ridge regression on one-hot targets, argmax decides.

    Args:
        parts: Hidden states and values of the probe's training sentences.
        classes: Number of values.
        shared: One probe per layer for all positions (an axis of size 1), or one for each position.
        ridge: Penalty, relative to the mean square of a hidden state's entries.

    Returns:
        Weights; the last row of the inputs is the bias, which has no penalty.
    """
    gram, cross = 0.0, 0.0
    for hidden, values in parts:
        X = _inputs(hidden, shared=shared)
        Y = functional.one_hot(values, classes).to(X)
        Y = Y.flatten(0, 1)[None] if shared else Y.transpose(0, 1)
        gram = gram + (X.mT @ X).double()
        cross = cross + (X.mT @ Y).double()
    penalty = gram.diagonal(dim1=-2, dim2=-1)[..., :-1].mean(dim=-1, keepdim=True) * ridge
    penalty = penalty.expand(*gram.shape[:-2], gram.shape[-1] - 1)
    gram.diagonal(dim1=-2, dim2=-1)[..., :-1] += penalty
    return torch.linalg.solve(gram, cross)


@torch.inference_mode()
def probe_accuracy(
    weights: Float[Tensor, "layers probes inputs classes"], parts: Iterable[States]
) -> Float[np.ndarray, "layers positions"]:
    """Return the accuracy of fitted probes on other sentences, by layer and position."""
    right, count = 0.0, 0
    for hidden, values in parts:
        W = weights.to(hidden.dtype)
        output = torch.einsum(
            "slkd,lkdc->slkc", hidden, W[:, :, :-1].expand(-1, values.shape[1], -1, -1)
        )
        predicted = (output + W[:, :, -1]).argmax(dim=-1)
        right = right + (predicted == values[:, None]).double().sum(dim=0)
        count += len(values)
    return (right / count).cpu().numpy()


def _inputs(
    hidden: Float[Tensor, "sentences layers positions d_model"], *, shared: bool
) -> Float[Tensor, "layers probes rows inputs"]:
    """Return the inputs of each probe, with a one for its bias."""
    rows = functional.pad(hidden, (0, 1), value=1.0).permute(1, 2, 0, 3)
    if shared:
        rows = rows.transpose(1, 2).flatten(1, 2)[:, None]
    return rows


def resolve_layer(
    accuracies: Float[np.ndarray, "layers positions"], *, threshold: float = 0.95
) -> Float[np.ndarray, "positions"]:
    """Return rho(k), the first layer whose probe is at the threshold at position k, or infinity."""
    known = accuracies >= threshold
    return np.where(known.any(axis=0), known.argmax(axis=0), np.inf)


def linearity(resolved: Float[np.ndarray, "positions"]) -> float:
    """Return R squared of rho on k over the resolved positions.

    NaN with fewer than three resolved positions, and where all are resolved in one layer.
    """
    position = np.flatnonzero(np.isfinite(resolved))
    layer = resolved[position]
    if len(layer) < 3 or np.ptp(layer) == 0:
        return float("nan")
    return float(np.corrcoef(position, layer)[0, 1] ** 2)


def order_violations(resolved: Float[np.ndarray, "positions"]) -> int:
    """Return the number of positions resolved in a later layer than their successor."""
    return int((resolved[:-1] > resolved[1:]).sum())
