"""How much of an inner product survives when only the largest vocabulary coordinates are kept.

Appendix A of the paper. Projected exactly, x E and y (E+)^T have the inner product x y^T. People
read only the top of a projection, and there E^T takes the place of the right inverse E+, because
for small k the product of keep_k(x E) with keep_k(y E) is closer to x y^T.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from scripts.anatomy.embedding.projection import COLUMNS_PER_CHUNK, dual

SPARSE = 0.1  # share of coordinates kept below which sparse products are faster on a CPU


def inner_products_kept(
    vectors: Float[Tensor, "n d_model"], W_E: Float[Tensor, "d_vocab d_model"], ks: Sequence[int]
) -> list[dict[str, float | str]]:
    """Return the cosine between inner products of all pairs, before and after keep_k.

    One record for each k and each `inverse`: "E^T" on both sides, or "E+" on one. `cosine` is over
    pairs of different vectors. `cosine_with_diagonal`, the published measure, has each vector's
    product with itself too, and these dominate as long as vectors are fewer than dimensions: it
    changes with their number. Accumulated in float64.

    Raises ValueError for a k beyond the vocabulary, and if there are no two vectors.
    """
    if len(vectors) < 2:
        raise ValueError("inner products of pairs need at least two vectors")
    if not all(1 <= k <= len(W_E) for k in ks):
        raise ValueError(f"k = {list(ks)}: the vocabulary has between 1 and {len(W_E)} to keep")
    true = vectors.double() @ vectors.double().T
    projected = vectors @ W_E.T
    smallest = smallest_kept(projected, ks)
    records = []
    for inverse in ("E^T", "E+"):
        other, smallest_other = projected, smallest
        if inverse == "E+":
            other = dual(vectors, W_E) @ W_E.T
            smallest_other = smallest_kept(other, ks)
        for i, k in enumerate(ks):
            kept = (projected, smallest[:, i, None]), (other, smallest_other[:, i, None])
            product = _sparse_product if _is_sparse(other, k) else _dense_product
            records.append({"k": k, "inverse": inverse} | _cosines(true, product(*kept)))
    return records


def smallest_kept(scores: Float[Tensor, "n d_vocab"], ks: Sequence[int]) -> Float[Tensor, "n ks"]:
    """Return the absolute value of the k-th largest coordinate of each row, for several k."""
    at = scores.shape[1] - np.array(ks)
    size = scores.abs().cpu().numpy()
    return torch.from_numpy(np.partition(size, at, axis=1)[:, at]).to(scores.device)


Kept = tuple[Float[Tensor, "n d_vocab"], Float[Tensor, "n 1"]]  # scores, and the smallest to keep


def _is_sparse(scores: Float[Tensor, "n d_vocab"], k: int) -> bool:
    return scores.device.type == "cpu" and k < SPARSE * scores.shape[1]


def _dense_product(one: Kept, other: Kept) -> Float[Tensor, "n n"]:
    """Inner products of what is kept, over blocks of the vocabulary."""
    blocks = zip(*(kept[0].split(COLUMNS_PER_CHUNK, dim=1) for kept in (one, other)), strict=True)
    return sum(_block(a, one[1]) @ _block(b, other[1]).T for a, b in blocks)


def _block(
    scores: Float[Tensor, "n columns"], smallest: Float[Tensor, "n 1"]
) -> Float[Tensor, "n columns"]:
    return (scores * (scores.abs() >= smallest)).double()


def _sparse_product(one: Kept, other: Kept) -> Float[Tensor, "n n"]:
    return torch.from_numpy((_sparse(*one) @ _sparse(*other).T).toarray())


def _sparse(
    scores: Float[Tensor, "n d_vocab"], smallest: Float[Tensor, "n 1"]
) -> scipy.sparse.csr_array:
    kept = scores.abs() >= smallest
    at = kept.nonzero().numpy().T
    return scipy.sparse.csr_array((scores[kept].double().numpy(), at), shape=scores.shape)


def _cosines(true: Float[Tensor, "n n"], approximate: Float[Tensor, "n n"]) -> dict[str, float]:
    different = ~torch.eye(len(true), dtype=torch.bool, device=true.device)
    return {
        "cosine": _cosine(true[different], approximate[different]),
        "cosine_with_diagonal": _cosine(true.flatten(), approximate.flatten()),
    }


def _cosine(one: Float[Tensor, "pairs"], other: Float[Tensor, "pairs"]) -> float:
    """Return the cosine of two vectors; their squares need not fit the range of floats."""
    return float(torch.dot(one / one.norm(), other / other.norm()))


# --- the vectors --------------------------------------------------------------------------------


def sample_rows(
    matrices: Sequence[Float[Tensor, "_ d_model"]], n: int, generator: torch.Generator
) -> Float[Tensor, "n d_model"]:
    """Return a sample of n different rows of several matrices, in which each row is as likely."""
    sizes = torch.tensor([len(matrix) for matrix in matrices])
    if n > sizes.sum():
        raise ValueError(f"a sample of {n} from {sizes.sum()} vectors")
    chosen = torch.randperm(int(sizes.sum()), generator=generator)[:n]
    ends = sizes.cumsum(0)
    which = torch.searchsorted(ends, chosen, right=True)
    rows = chosen - (ends - sizes)[which]
    return torch.stack([matrices[m][row] for m, row in zip(which, rows, strict=True)])
