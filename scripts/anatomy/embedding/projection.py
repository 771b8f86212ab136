"""Vectors of parameters read in vocabulary space: projections, their extremes, and E's inverse.

The paper's E has a column for each token: it is W_E transposed. A vector w that is added to the
stream projects to w E. One that the stream is compared with projects exactly to w (E+)^T, with the
right inverse E+ = E^T (E E^T)^-1, and is read as w E all the same, since that survives keeping only
the largest coordinates (sections 2 and 3 and Appendix A).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

VECTORS_PER_CHUNK = 512  # projected at a time: 100 MB for 50,000 tokens
COLUMNS_PER_CHUNK = 8192


class Extremes(NamedTuple):
    """The k largest coordinates of each w E, and those of each -w E, largest first."""

    ids_high: Int[Tensor, "vectors k"]
    scores_high: Float[Tensor, "vectors k"]
    ids_low: Int[Tensor, "vectors k"]
    scores_low: Float[Tensor, "vectors k"]


def extremes(
    vectors: Float[Tensor, "vectors d_model"],
    W_E: Float[Tensor, "d_vocab d_model"],
    *,
    k: int,
    allowed: Bool[Tensor, "d_vocab"] | None = None,
) -> Extremes:
    """Return the tokens at both ends of each vector's projection, among the `allowed` ones.

    Tokens are in one order, by score and where scores are equal by id, and the low end is that
    order read from its end: no token is in both lists, also for a vector of zeros. The k largest
    by absolute value are in the union of the lists. Raises ValueError if 2 k tokens are not there,
    or if weights are not finite.
    """
    ids = torch.arange(len(W_E)) if allowed is None else allowed.cpu().nonzero().squeeze(1)
    if not 1 <= k <= len(ids) // 2:
        raise ValueError(f"k = {k}: two lists need between 2 and {len(ids)} tokens")
    if not (vectors.isfinite().all() and W_E.isfinite().all()):
        raise ValueError("weights are not finite")
    E = (W_E if allowed is None else W_E[ids.to(W_E.device)]).float().T
    chunks = []
    for chunk in vectors.split(VECTORS_PER_CHUNK):
        scores = chunk.float() @ E  # in half precision, most of the top would be ties
        high = top_k(scores, k)
        low = top_k(scores.neg_(), k, late_first=True)
        chunks.append([part.cpu() for part in (high[1], high[0], low[1], low[0])])
    high_at, high, low_at, low = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return Extremes(ids[high_at], high, ids[low_at], low)


def top_k(
    scores: Float[Tensor, "rows columns"], k: int, *, late_first: bool = False
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """Return the k largest of each row, largest first, and their columns.

    Among equal scores the lower column is first, or with `late_first` the higher one. Raises
    ValueError if a row has fewer.
    """
    if not 1 <= k <= scores.shape[1]:
        raise ValueError(f"k = {k}: there are {scores.shape[1]} tokens to take from")
    values, ids = scores.topk(min(k + 1, scores.shape[1]))  # one more shows a tie at the end
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1)
    if tied.any():  # of which topk would take any
        rows = scores[tied].flip(1) if late_first else scores[tied]
        ordered, at = (
            part[:, : values.shape[1]] for part in rows.sort(stable=True, descending=True)
        )
        values[tied], ids[tied] = ordered, scores.shape[1] - 1 - at if late_first else at
    return values[:, :k], ids[:, :k]


def dual(
    vectors: Float[Tensor, "vectors d_model"], W_E: Float[Tensor, "d_vocab d_model"]
) -> Float[Tensor, "vectors d_model"]:
    """Return the vectors w (E E^T)^-1, of which the projection with E is w (E+)^T.

    So the inner product of a projection with a dual's is that of the vectors: (x E)(y E+^T)^T is
    x y^T. The dual of W_E itself is E+, tokens as rows. In float64 through a Cholesky
    decomposition; raises ValueError if the embedding has not full rank, and so no right inverse.
    """
    gram = sum(rows.double().T @ rows.double() for rows in W_E.split(COLUMNS_PER_CHUNK))
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed or factor.diagonal().min() < 1e-7 * factor.diagonal().max():
        raise ValueError(
            f"an embedding of {len(W_E)} tokens in {W_E.shape[1]} dimensions has no right inverse: "
            "its rank is not full"
        )
    return torch.cholesky_solve(vectors.double().T, factor).T.to(vectors.dtype)
