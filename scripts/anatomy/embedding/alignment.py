"""How alike the parameters of two models with one vocabulary are, and which layers go together.

A vector x of one model and a vector y of another cannot be compared, for their coordinates are
others; the tokens x E_A^T and y E_B^T can. Their Pearson correlation over tokens is

    corr(x, y) = x C_AB y^T / sqrt((x C_AA x^T) (y C_BB y^T)),

C being the covariances over tokens of the rows of W_E, d_A x d_B at most, so that nothing as long
as the vocabulary is ever made of a parameter. The score of two layers is the mean of |corr| over
all pairs of their vectors, and layers are matched so that the sum of scores is largest (section 5.1
and Figure 3 of the paper).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from scripts.anatomy import seeding
from scripts.anatomy.embedding.parameters import WRITTEN, groups, output_embedding
from scripts.anatomy.embedding.views import ModelView

TOKENS_PER_CHUNK = 2048  # whose embeddings are in memory in double precision
SINGULAR = 1e7  # condition number of an embedding from which on it does not tell vectors apart
CLOSE = 1e-4  # assignments whose sums of scores differ by less cannot be told apart


# --- correlations -------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """Covariances over tokens of the coordinates of two embeddings, in float64."""

    A: Float[Tensor, "d_A d_A"]
    B: Float[Tensor, "d_B d_B"]
    AB: Float[Tensor, "d_A d_B"]


class Kernels(NamedTuple):
    """One kernel for what is compared with the stream, one for what is written to it."""

    read: Kernel
    written: Kernel


def kernel(W_A: Float[Tensor, "tokens d_A"], W_B: Float[Tensor, "tokens d_B"]) -> Kernel:
    """Return the kernel of two embeddings, of which each row is the same token."""
    mean_A, mean_B = (_chunks_sum(W) / len(W) for W in (W_A, W_B))
    A, B, AB = (mean.new_zeros(len(mean), len(other)) for mean, other in (
        (mean_A, mean_A), (mean_B, mean_B), (mean_A, mean_B)
    ))  # fmt: skip
    for rows_A, rows_B in zip(
        W_A.split(TOKENS_PER_CHUNK), W_B.split(TOKENS_PER_CHUNK), strict=True
    ):
        a, b = rows_A.double() - mean_A, rows_B.double() - mean_B
        for total, (left, right) in zip((A, B, AB), ((a, a), (b, b), (a, b)), strict=True):
            total.addmm_(left.T, right, alpha=1 / len(W_A))
    return Kernel(A, B, AB)


def _chunks_sum(W: Float[Tensor, "tokens d_model"]) -> Float[Tensor, "d_model"]:
    return sum(rows.double().sum(dim=0) for rows in W.split(TOKENS_PER_CHUNK))


def kernels(
    A: ModelView,
    B: ModelView,
    tokens: tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]],
) -> Kernels:
    """The kernels of two models, over tokens that have these ids in the one and in the other."""
    read = kernel(A.W_E[tokens[0]], B.W_E[tokens[1]])
    if all(output_embedding(model) is model.W_E for model in (A, B)):
        return Kernels(read, read)
    written = (output_embedding(model)[ids] for model, ids in zip((A, B), tokens, strict=True))
    return Kernels(read, kernel(*written))


def controls(
    A: ModelView,
    B: ModelView,
    tokens: tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]],
    seeds: Sequence[int],
) -> Iterator[tuple[str, int | None, Kernels]]:
    """Yield what alignment is set against: name, seed of a random control, kernels.

    features: over the raw coordinates, if there are as many. identity: over tokens, both models
    read with the embedding of the first, as if their coordinates were the same. shuffled: over
    tokens, those of the second in another order.
    """
    width = A.W_E.shape[1]
    if width == B.W_E.shape[1]:
        yield "features", None, raw_coordinates(width, A.W_E.device)
        yield "identity", None, kernels(A, A, (tokens[0], tokens[0]))
    for seed in seeds:
        draw = seeding.torch_generator(seed, "shuffled vocabulary")
        order = torch.randperm(len(tokens[1]), generator=draw)
        yield "shuffled", seed, kernels(A, B, (tokens[0], tokens[1][order]))


def raw_coordinates(d_model: int, device: str | torch.device = "cpu") -> Kernels:
    """The kernels of no vocabulary at all: correlations over the coordinates of the vectors."""
    identity = torch.eye(d_model, device=device)
    return Kernels(*[kernel(identity, identity)] * 2)


def correlations(
    X: Float[Tensor, "n d_A"], Y: Float[Tensor, "m d_B"], kernel: Kernel
) -> Float[Tensor, "n m"]:
    """Correlations over tokens of all pairs; 0 with a vector that is the same at every token."""
    x, y = sides(X, Y, kernel)
    return x @ y.T


def layer_scores(
    A: Iterable[Float[Tensor, "n d_A"]], B: Iterable[Float[Tensor, "m d_B"]], kernel: Kernel
) -> Float[np.ndarray, "layers_A layers_B"]:
    """Return mean |corr| over all pairs of vectors of two layers, for all pairs of layers.

    Of A one layer is in memory at a time, of the correlations those of one pair of layers, in the
    precision of the vectors.
    """
    to_A, to_B = _mappings(kernel)
    rights = [_standardised(Y, kernel.B, to_A) for Y in B]
    lefts = (_standardised(X, kernel.A, to_B) for X in A)
    return np.array([[mean_size(x, y) for y in rights] for x in lefts])


def mean_size(x: Float[Tensor, "n width"], y: Float[Tensor, "m width"]) -> float:
    """Return the mean of |x y^T|, whose 1-norm sums without a copy."""
    return float(torch.linalg.vector_norm(x @ y.T, 1)) / (len(x) * len(y))


def chance(kernel: Kernel, generator: torch.Generator, *, vectors: int = 1000) -> float:
    """The score of two layers of normal vectors: what the embeddings alone make of any two."""
    X, Y = (
        torch.randn(vectors, len(covariance), generator=generator).to(covariance.device)
        for covariance in (kernel.A, kernel.B)
    )
    return mean_size(*sides(X, Y, kernel))


def sides(
    X: Float[Tensor, "n d_A"], Y: Float[Tensor, "m d_B"], kernel: Kernel
) -> tuple[Float[Tensor, "n width"], Float[Tensor, "m width"]]:
    """Two factors of the correlations, as wide as the narrower of the models."""
    to_A, to_B = _mappings(kernel)
    return _standardised(X, kernel.A, to_B), _standardised(Y, kernel.B, to_A)


def _mappings(kernel: Kernel) -> tuple[Tensor | None, Tensor | None]:
    """What takes the vectors of B to A, or those of A to B, whichever is narrower; else None."""
    narrow = kernel.AB.shape[0] <= kernel.AB.shape[1]
    return (kernel.AB.T, None) if narrow else (None, kernel.AB)


def _standardised(
    vectors: Float[Tensor, "n d_model"],
    covariance: Float[Tensor, "d_model d_model"],
    mapping: Float[Tensor, "d_model width"] | None,
) -> Float[Tensor, "n width"]:
    """Vectors over the standard deviations of their projections, taken to the other model."""
    exact = vectors.double()
    variance = ((exact @ covariance) * exact).sum(dim=1, keepdim=True)
    scaled = torch.where(variance > 0, exact * variance.clamp(min=0).rsqrt(), 0)
    return (scaled if mapping is None else scaled @ mapping).to(vectors.dtype)


def model_scores(
    A: ModelView, B: ModelView, kernels: Kernels
) -> dict[str, Float[np.ndarray, "layers_A layers_B"]]:
    """Return the scores of all pairs of layers, for every group that both models have."""
    shared = [name for name in groups(A.layers[0]) if name in groups(B.layers[0])]
    return {
        name: layer_scores(
            _vectors(A, name),
            _vectors(B, name),
            kernels.written if name in WRITTEN else kernels.read,
        )
        for name in shared
    }


def _vectors(model: ModelView, group: str) -> Iterator[Float[Tensor, "n d_model"]]:
    """The vectors of a group, layer by layer; those of heads are copies, made when they are due."""
    for layer in model.layers:
        yield groups(layer)[group].reshape(-1, model.W_E.shape[1])


def block_scores(
    A: ModelView, B: ModelView, kernels: Kernels
) -> Float[np.ndarray, "blocks_A blocks_B"]:
    """Return the scores of all groups of all layers with all of the other model, layer by layer.

    For models with tied embeddings: what is written and what is read are compared as well.
    """
    sides = (
        [rows.flatten(0, -2) for layer in model.layers for rows in groups(layer).values()]
        for model in (A, B)
    )
    return layer_scores(*sides, kernels.read)


# --- matching -----------------------------------------------------------------------------------


class Assignment(NamedTuple):
    """Which layers go together.

    Attributes:
        a: Layers of the first model; as many as the shallower model has.
        b: Their partners in the second.
        margin: What the sum of scores loses when a pair may not be; NaN if there is no other way.
    """

    a: Int[np.ndarray, "pairs"]
    b: Int[np.ndarray, "pairs"]
    margin: Float[np.ndarray, "pairs"]


def assign(scores: Float[np.ndarray, "layers_A layers_B"]) -> Assignment:
    """Match every layer of the shallower model so that the sum of scores is largest."""
    a, b = linear_sum_assignment(scores, maximize=True)
    best = scores[a, b].sum()
    forbidden = scores.min() - (len(a) + 1) * (np.ptp(scores) + 1)
    margin = np.full(len(a), np.nan)
    for number, pair in enumerate(zip(a, b, strict=True)):
        others = scores.copy()
        others[pair] = forbidden
        second = linear_sum_assignment(others, maximize=True)
        if pair not in zip(*second, strict=True):
            margin[number] = best - scores[second].sum()
    return Assignment(a, b, margin)


def centred(
    scores: Float[np.ndarray, "layers_A layers_B"],
) -> Float[np.ndarray, "layers_A layers_B"]:
    """Scores without what a layer has in common with all layers of the other model."""
    rows, columns = scores.mean(axis=1, keepdims=True), scores.mean(axis=0, keepdims=True)
    return scores - rows - columns + scores.mean()


def same_depth(
    layers_A: int, layers_B: int
) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
    """Return the layers of the same depth in both models, the last ones paired.

    Of the deeper model, the layer after which the same share of the layers is behind, rounded down.
    """
    short, deep = sorted((layers_A, layers_B))
    one = np.arange(short)
    other = (one + 1) * deep // short - 1
    return (one, other) if layers_A <= layers_B else (other, one)


def p_value(
    scores: Float[np.ndarray, "layers_A layers_B"], rng: np.random.Generator, *, draws: int = 1000
) -> float:
    """Return the p-value of the same-depth assignment: the share of random ones that score as high.

    Of all assignments if there are at most `draws`, else of that many.
    """
    a, b = same_depth(*scores.shape)
    observed = scores[a, b].sum()
    wide = scores if scores.shape[0] <= scores.shape[1] else scores.T
    short, deep = wide.shape
    every = math.perm(deep, short) <= draws
    if every:
        orders = np.array([*permutations(range(deep), short)])
    else:
        orders = np.argsort(rng.random((draws, deep)), axis=1)[:, :short]
    sums = wide[np.arange(short), orders].sum(axis=1)
    reached = int((sums >= observed - 1e-12).sum())
    return reached / len(sums) if every else (reached + 1) / (draws + 1)


def agreement(scores: Float[np.ndarray, "layers_A layers_B"], expected: Sequence[int]) -> float:
    """Share of the layers that are matched as expected.

    All of them if the expected assignment's sum of scores is less than `CLOSE` from the best.
    Raises ValueError for an assignment of other layers.
    """
    assignment = assign(scores)
    if len(expected) != len(assignment.a) or not {*expected} <= {*range(scores.shape[1])}:
        raise ValueError(f"{list(expected)} matches no {' x '.join(map(str, scores.shape))} layers")
    lost = scores[assignment.a, assignment.b].sum() - scores[assignment.a, list(expected)].sum()
    return 1.0 if lost < CLOSE else float(np.mean(assignment.b == np.array(expected)))


def summary(
    scores: Mapping[str, Float[np.ndarray, "layers_A layers_B"]],
    rng: np.random.Generator,
    draws: int,
) -> dict[str, dict[str, float]]:
    """Return what matching says, by group, and under "all" over the groups.

    mean: mean score. matched: mean score of the layers matched. contrast: the same of centred
    scores. same_depth and same_depth_contrast: of the layers that are as deep. right: how many of
    the layers matched are as deep; right_share: as a share of them; right_centred: how many if
    centred scores are matched, which is the same for models of one depth. margin: the smallest loss
    of another assignment. p: `p_value`; over the groups, of the sum of their scores.
    """
    summaries = {name: _record(S, rng, draws) for name, S in scores.items()}
    records = list(summaries.values())
    total = {key: float(np.mean([record[key] for record in records])) for key in records[0]}
    for count in ("right", "right_centred"):
        total[count] = sum(record[count] for record in records)
    total["margin"] = min(record["margin"] for record in records)
    total["p"] = p_value(sum(scores.values()), rng, draws=draws)
    return summaries | {"all": total}


def _record(
    scores: Float[np.ndarray, "layers_A layers_B"], rng: np.random.Generator, draws: int
) -> dict[str, float]:
    a, b, margin = assign(scores)
    deep, specific = same_depth(*scores.shape), centred(scores)
    wanted = {*zip(*deep, strict=True)}
    right = len({*zip(a, b, strict=True)} & wanted)
    again = assign(specific)
    return {
        "mean": float(scores.mean()),
        "matched": float(scores[a, b].mean()),
        "contrast": float(specific[a, b].mean()),
        "same_depth": float(scores[deep].mean()),
        "same_depth_contrast": float(specific[deep].mean()),
        "right": right,
        "right_share": right / len(a),
        "right_centred": len({*zip(again.a, again.b, strict=True)} & wanted),
        "margin": float(margin.min()),
        "p": p_value(scores, rng, draws=draws),
    }


def rows(
    scores: Mapping[str, Float[np.ndarray, "layers_A layers_B"]],
) -> Iterator[dict[str, str | int | float | bool]]:
    """Yield a record for each group and pair of layers; `margin` where they are matched."""
    for name, S in scores.items():
        assignment, specific = assign(S), centred(S)
        margins = dict(
            zip(zip(assignment.a, assignment.b, strict=True), assignment.margin, strict=True)
        )
        again = assign(specific)
        also = {*zip(again.a, again.b, strict=True)}
        for pair in np.ndindex(S.shape):
            yield {
                "group": name,
                "layer_a": pair[0],
                "layer_b": pair[1],
                "score": S[pair],
                "centred": specific[pair],
                "matched": pair in margins,
                "matched_centred": pair in also,
                "margin": margins.get(pair, float("nan")),
            }


# --- vocabularies -------------------------------------------------------------------------------


def shared_ids(
    a: Sequence[str], b: Sequence[str], offset: int = 0
) -> tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]:
    """Return the ids of all tokens of one model, and of the same tokens in the other.

    Raises:
        ValueError: Ids stand for other tokens, or for none; how many, and the first three.
    """
    ids = torch.arange(len(a))
    there = {number: token for number, token in enumerate(b, start=-offset)}
    wrong = [number for number, token in enumerate(a) if there.get(number) != token]
    if wrong:
        first = ", ".join(
            f"{n} ({a[n]!r}, there {there[n]!r})" if n in there else f"{n} ({a[n]!r}, not there)"
            for n in wrong[:3]
        )
        shift = f" plus {offset}" if offset else ""
        raise ValueError(
            f"the vocabularies differ: {len(wrong):,} of {len(a):,} ids of a{shift} are not the "
            f"same tokens in b: {first}{', ...' if len(wrong) > 3 else ''}"
        )
    return ids, ids + offset


def conditions(kernels: Kernels) -> dict[str, float]:
    """Return the condition number of each model's embedding, the worse where there are two.

    Raises:
        ValueError: An embedding is singular: vectors that differ read the same.
    """
    return {
        side: max(_condition(getattr(kernel, side.upper()), side) for kernel in kernels)
        for side in "ab"
    }


def _condition(covariance: Float[Tensor, "d_model d_model"], side: str) -> float:
    values = torch.linalg.eigvalsh(covariance)
    number = math.sqrt(values[-1] / values[0]) if values[0] > 0 else math.inf
    if not number < SINGULAR:
        raise ValueError(
            f"the embedding of {side}, in {len(covariance)} dimensions, is singular (condition "
            f"number {number:.1e}): vectors that differ read the same"
        )
    return number
