"""Where a model's heads look, and in which layer it knows a variable's value.

Head scores, in the paper's terms association and manipulation, need attention maps and tokens of
any model. Layer probes are linear classifiers on the hidden states at the variables' places. They
are fitted in closed form from sums over sentences, so that all layers and positions cost one
forward pass and little more, and no hidden state is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from scripts.anatomy.lego_attention import partners

WINDOW = 2  # places to each side that count as the neighbourhood of manipulation
SENTENCES_AT_ONCE = 50

States = tuple[
    Float[Tensor, "sentences layers positions d_model"], Int64[Tensor, "sentences positions"]
]


@dataclass(frozen=True)
class HeadScores:
    """Attention mass, on average over queries, of every head of every layer.

    Attributes:
        association: On the other places of the query's token; queries that have any.
        association_on_variables: The same, of queries that are variables.
        manipulation: On the query's place and two places to each side.
        best_offset: The place, relative to the query's, that gets most over all queries.
        best_offset_mass: That mass; queries without such a place count as 0.
        distance: Mean distance between query and key, in places.
    """

    association: Float[np.ndarray, "layers heads"]
    association_on_variables: Float[np.ndarray, "layers heads"]
    manipulation: Float[np.ndarray, "layers heads"]
    best_offset: Int64[np.ndarray, "layers heads"]
    best_offset_mass: Float[np.ndarray, "layers heads"]
    distance: Float[np.ndarray, "layers heads"]


@torch.inference_mode()
def attention_maps(
    model: nn.Module, tokens: Int64[Tensor, "sentences length"]
) -> Iterator[Float[Tensor, "sentences layers heads length length"]]:
    """The maps of a model of `models.py`, some sentences at a time."""
    for part in tokens.split(SENTENCES_AT_ONCE):
        yield model.read(part, maps=True).maps


def head_scores(
    maps: Iterable[Float[Tensor, "sentences layers heads length length"]],
    tokens: Int64[Tensor, "sentences length"],
    variables: Int64[Tensor, "letters"],
) -> HeadScores:
    """Scores from maps of consecutive sentences; uniform maps score 1 and 5 over the length.

    Args:
        maps: Attention weights, in parts.
        tokens: The sentences of all parts.
        variables: The tokens that are variables.

    Raises:
        ValueError: No token of any sentence occurs twice, or no variable does.
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
            raise ValueError(f"no {name} occurs twice in a sentence, so association has no score")
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
        distance=by_offset @ np.abs(offsets),
    )


@torch.inference_mode()
def states(
    model: nn.Module,
    tokens: Int64[Tensor, "sentences length"],
    places: Int64[Tensor, "sentences positions"],
    values: Int64[Tensor, "sentences positions"],
    *,
    at_once: int = SENTENCES_AT_ONCE,
    **options: int,
) -> Iterator[States]:
    """Hidden states of all layers at the variables' places, and the values, in parts."""
    split = (array.split(at_once) for array in (tokens, places, values))
    for some, where, answers in zip(*split, strict=True):
        yield model.read(some, where, **options).hidden, answers


@torch.inference_mode()
def fit_probes(
    parts: Iterable[States], *, classes: int, shared: bool = True, ridge: float = 1e-4
) -> Float[Tensor, "layers positions inputs classes"]:
    """Linear classifiers of the value: ridge regression on one-hot targets, largest output wins.

    Args:
        parts: Hidden states and values of the probe's training sentences.
        classes: Number of values.
        shared: One probe a layer for all positions (an axis of size 1), or one for each.
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
    """Accuracy of fitted probes on other sentences, by position, whichever are shared."""
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
    """The rows that each probe sees, with a one for its bias."""
    rows = functional.pad(hidden, (0, 1), value=1.0).permute(1, 2, 0, 3)
    if shared:
        rows = rows.transpose(1, 2).flatten(1, 2)[:, None]
    return rows


def resolve_layer(
    accuracies: Float[np.ndarray, "layers positions"], *, threshold: float = 0.95
) -> Float[np.ndarray, "positions"]:
    """rho(k), the first layer whose probe knows position k; infinity if none does."""
    known = accuracies >= threshold
    return np.where(known.any(axis=0), known.argmax(axis=0), np.inf)


def linearity(resolved: Float[np.ndarray, "positions"]) -> float:
    """R squared of rho on k over the positions that are resolved; NaN with fewer than three.

    NaN too where all are resolved in one layer: then there is nothing to explain.
    """
    position = np.flatnonzero(np.isfinite(resolved))
    layer = resolved[position]
    if len(layer) < 3 or np.ptp(layer) == 0:
        return float("nan")
    return float(np.corrcoef(position, layer)[0, 1] ** 2)


def order_violations(resolved: Float[np.ndarray, "positions"]) -> int:
    """Positions that are resolved later than the one after them in the chain."""
    return int((resolved[:-1] > resolved[1:]).sum())
