"""The vocabulary-by-vocabulary matrix of a head, read from its two thin factors.

Dar et al. (2023, Table 1) project the matrices of a head onto the vocabulary: M = A B^T with
A = W_E W_V and B = W_E W_O^T for what a head writes, A = W_E W_Q and B = W_E W_K for where it
attends. M has billions of entries and rank d_head, and is never made. Its largest entries are
searched in tiles, most of which a bound rules out unseen; everything spectral comes from
d_head x d_head products. What single precision cannot tell apart is computed again in double.
"""

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Complex, Float, Integer
from torch import Tensor

TILE = 1024  # rows and columns: 4 MB in single precision, which stays in the cache
PAIRS_PER_CHUNK = 2**14  # computed again at once; bounds the memory where very many entries tie
RIDGE = 1e-6  # times the mean eigenvalue, added to a Gram matrix that may have no inverse

Order = Literal["largest", "smallest", "absolute"]
Key = Callable[[Tensor], Tensor]  # what an order sorts by, from the largest
KEYS: dict[Order, Key] = {"largest": torch.positive, "smallest": torch.neg, "absolute": torch.abs}


class Pairs(NamedTuple):
    """Entries of M, first what comes first in the order asked for.

    Attributes:
        rows: Token ids of their rows.
        columns: Token ids of their columns.
        values: The entries.
        scanned: Share of the allowed entries of M that were computed on the way.
    """

    rows: Integer[Tensor, "k"]
    columns: Integer[Tensor, "k"]
    values: Float[Tensor, "k"]
    scanned: float = 1.0


class Spectrum(NamedTuple):
    """A thin singular value decomposition, left diag(values) right^T."""

    left: Float[Tensor, "rows rank"]
    values: Float[Tensor, "rank"]
    right: Float[Tensor, "columns rank"]


# --- the first entries in an order --------------------------------------------------------------


@torch.inference_mode()
def top_pairs(
    A: Float[Tensor, "rows d_head"],
    B: Float[Tensor, "columns d_head"],
    k: int,
    *,
    order: Order = "largest",
    allowed_rows: Bool[Tensor, "rows"] | None = None,
    allowed_columns: Bool[Tensor, "columns"] | None = None,
    word_of: Integer[Tensor, "d_vocab"] | None = None,
) -> Pairs:
    """Return the first k entries of M = A B^T, exactly.

    No entry of a tile exceeds the product of its largest row norm and column norm
    (Cauchy-Schwarz). The norms are those in balanced coordinates, sorted; tiles are visited from
    the highest bound down, and one without room for anything better than the k-th entry found so
    far is not computed.

    Args:
        A: Left factor; row i belongs to token i.
        B: Right factor.
        k: How many entries.
        order: By value from the "largest" or from the "smallest", or by "absolute" value from the
            largest. Equals are in the order of their rows, then of their columns.
        allowed_rows: Tokens that may be the row; all without it.
        allowed_columns: Tokens that may be the column.
        word_of: A number for each token; pairs of tokens with the same number are left out.
            `torch.arange(d_vocab)` leaves out the diagonal.

    Raises:
        ValueError: There are fewer than k such pairs, or a factor has entries that are not finite.
    """
    row_ids, column_ids = _ids(A, allowed_rows), _ids(B, allowed_columns)
    _check(A, B, k, _count(row_ids, column_ids, word_of))
    left, right = balance(A[row_ids], B[column_ids])
    left, row_norm, row_ids = _by_norm(left, row_ids)
    right, column_norm, column_ids = _by_norm(right, column_ids)
    key, scanned = KEYS[order], 0
    best = Pairs(row_ids[:0], column_ids[:0], row_norm[:0])
    last: tuple[float, ...] = (-math.inf,)  # the rank to beat
    for bound, r, c in _tiles(row_norm, column_norm):
        margin = bound * _rounding(A)
        if _rank(bound + margin, row_ids[r], column_ids[c]) <= last:
            continue
        tile = key(left[r] @ right[c].T)
        scanned += tile.numel()
        if tile.amax() < (floor := last[0] - margin):
            continue
        rows, columns = _candidates(tile, row_ids[r], column_ids[c], k, margin, floor, word_of)
        rows, columns = torch.cat([best.rows, rows]), torch.cat([best.columns, columns])
        best = _first(A, B, rows, columns, k, key)
        if len(best.values) == k:
            last = _rank(key(best.values[-1]).item(), best.rows[-1], best.columns[-1])
    return best._replace(scanned=scanned / (len(row_ids) * len(column_ids)))


@torch.inference_mode()
def top_columns(
    A: Float[Tensor, "rows d_head"],
    B: Float[Tensor, "columns d_head"],
    row_ids: Integer[Tensor, "chosen"],
    k: int,
    *,
    order: Order = "largest",
    allowed_columns: Bool[Tensor, "columns"] | None = None,
) -> tuple[Integer[Tensor, "chosen k"], Float[Tensor, "chosen k"]]:
    """Return columns and values of the first k entries of each chosen row.

    They are what a head makes of a token.

    Exact and ordered as in `top_pairs`, which says what the arguments are and what is raised.
    """
    column_ids = _ids(B, allowed_columns)
    _check(A, B, k, len(column_ids))
    right, key, entries = B[column_ids].float(), KEYS[order], []
    reach = right.norm(dim=1).max().item() * _rounding(A)
    for row in row_ids.split(1):
        left = A[row].float()
        margin = left.norm().item() * reach
        candidates = _candidates(key(left @ right.T), row, column_ids, k, margin)
        entries.append(_first(A, B, *candidates, k, key))
    return torch.stack([one.columns for one in entries]), torch.stack(
        [one.values for one in entries]
    )


def balance(
    A: Float[Tensor, "rows d_head"], B: Float[Tensor, "columns d_head"]
) -> tuple[Float[Tensor, "rows d_head"], Float[Tensor, "columns d_head"]]:
    """Factors of the same product, in double precision, with equal and diagonal Gram matrices.

    They are A T and B T^-T for the T that balances two Gramians by their Cholesky factors (Laub et
    al. 1987); the ridge leaves the product as it is. Norms of A and B often lie along directions
    that the other factor hardly has, and then say little about the entries of A B^T.
    """
    A, B = A.double(), B.double()
    L_A, L_B = _cholesky(A), _cholesky(B)
    U, values, Vh = torch.linalg.svd(L_A.T @ L_B)
    return A @ (L_B @ Vh.T / values.sqrt()), B @ (L_A @ U / values.sqrt())


def _cholesky(A: Float[Tensor, "rows d_head"]) -> Float[Tensor, "d_head d_head"]:
    """Return the Cholesky factor of A^T A with a ridge, which is not zero even if A is."""
    gram = A.T @ A
    gram.diagonal().add_(RIDGE * gram.diagonal().mean() + 1e-200)
    return torch.linalg.cholesky(gram)


def _by_norm(
    factor: Float[Tensor, "rows d_head"], ids: Integer[Tensor, "rows"]
) -> tuple[Float[Tensor, "rows d_head"], Float[Tensor, "rows"], Integer[Tensor, "rows"]]:
    """Return a factor in single precision, its rows' norms and their ids, by falling norm."""
    factor = factor.float()
    norm, at = factor.double().norm(dim=1).sort(descending=True, stable=True)
    return factor[at], norm, ids[at]


def _tiles(
    row_norm: Float[Tensor, "rows"], column_norm: Float[Tensor, "columns"]
) -> Iterator[tuple[float, slice, slice]]:
    """Tiles and the bounds on their entries, by falling bound; norms fall too."""
    bounds = torch.outer(row_norm[::TILE], column_norm[::TILE])
    highest, at = bounds.flatten().sort(descending=True, stable=True)
    for bound, place in zip(highest.tolist(), at.tolist(), strict=True):
        row, column = divmod(place, bounds.shape[1])
        row, column = row * TILE, column * TILE
        yield bound, slice(row, row + TILE), slice(column, column + TILE)


def _rank(
    key: float, row_ids: Integer[Tensor, "*rows"], column_ids: Integer[Tensor, "*columns"]
) -> tuple[float, ...]:
    """Return the key by which pairs are ordered; of several pairs, an upper bound of it."""
    return key, -row_ids.min().item(), -column_ids.min().item()


def _rounding(A: Float[Tensor, "rows d_head"]) -> float:
    """Return the bound on the error of a product in single precision, over the product of norms.

    That is (d_head + 2) units of rounding for a sum of products of rounded numbers (Higham 2002,
    section 3.1); machine epsilon is two units, so that there is room for the norms' own.
    """
    return (A.shape[1] + 2) * torch.finfo(torch.float32).eps


def _candidates(
    tile: Float[Tensor, "tile_rows tile_columns"],
    row_ids: Integer[Tensor, "tile_rows"],
    column_ids: Integer[Tensor, "tile_columns"],
    k: int,
    margin: float,
    floor: float = -math.inf,
    word_of: Integer[Tensor, "d_vocab"] | None = None,
) -> tuple[Integer[Tensor, "pairs"], Integer[Tensor, "pairs"]]:
    """Ids of all that may be among the first k, where the tile's keys are off by up to a margin."""
    at = (tile >= floor).nonzero(as_tuple=True)
    rows, columns, values = row_ids[at[0]], column_ids[at[1]], tile[at]
    kept = torch.ones_like(values, dtype=torch.bool)
    if word_of is not None:
        kept = word_of[rows] != word_of[columns]
    if kept.sum() > k:
        kept &= values >= values[kept].topk(k).values[-1] - 2 * margin
    return rows[kept], columns[kept]


def _first(
    A: Float[Tensor, "rows d_head"],
    B: Float[Tensor, "columns d_head"],
    rows: Integer[Tensor, "pairs"],
    columns: Integer[Tensor, "pairs"],
    k: int,
    key: Key,
) -> Pairs:
    """Return the first k of some pairs, by values in double precision."""
    parts = zip(rows.split(PAIRS_PER_CHUNK), columns.split(PAIRS_PER_CHUNK), strict=True)
    values = torch.cat([(A[r].double() * B[c].double()).sum(dim=1) for r, c in parts])
    by_id = (rows * len(B) + columns).argsort()
    at = by_id[key(values)[by_id].argsort(descending=True, stable=True)][:k]
    return Pairs(rows[at], columns[at], values[at])


def _ids(
    factor: Float[Tensor, "rows d_head"], allowed: Bool[Tensor, "rows"] | None
) -> Integer[Tensor, "allowed_rows"]:
    """Return the numbers of the allowed rows."""
    if allowed is None:
        return torch.arange(len(factor), device=factor.device)
    return allowed.to(factor.device).nonzero()[:, 0]


def _count(
    row_ids: Integer[Tensor, "rows"],
    column_ids: Integer[Tensor, "columns"],
    word_of: Integer[Tensor, "d_vocab"] | None,
) -> int:
    """Return how many pairs there are, without those inside a word."""
    pairs = len(row_ids) * len(column_ids)
    if word_of is None:
        return pairs
    words = int(word_of.max()) + 1
    per_word = [word_of[ids].bincount(minlength=words) for ids in (row_ids, column_ids)]
    return pairs - int((per_word[0] * per_word[1]).sum())


def _check(
    A: Float[Tensor, "rows d_head"], B: Float[Tensor, "columns d_head"], k: int, pairs: int
) -> None:
    """Raise ValueError for a k out of range or factors that are not finite."""
    if not 1 <= k <= pairs:
        raise ValueError(f"k is {k}; there are {pairs} pairs to choose from")
    _check_finite(A, B)


def _check_finite(*factors: Float[Tensor, "tokens d_head"]) -> None:
    """Raise ValueError for NaN or infinity."""
    if not all(factor.isfinite().all() for factor in factors):
        raise ValueError("a factor has entries that are not finite")


# --- the diagonal and the spectrum --------------------------------------------------------------


@torch.inference_mode()
def identity_share(A: Float[Tensor, "d_vocab d_head"], B: Float[Tensor, "d_vocab d_head"]) -> float:
    """Share of the tokens whose row of A B^T has no larger entry than the one on the diagonal.

    All rows are read, in double precision; a difference that may be rounding is none. A row is done
    with once a column beats its diagonal, or once no column that is left can. Columns come by
    falling norm, so that for most rows one of the two is soon the case.

    Raises:
        ValueError: Rows and columns are not the same tokens, or an entry is not finite.
    """
    _check_square(A, B)
    left, right = balance(A, B)
    diagonal, row_norm = (left * right).sum(dim=1), left.norm(dim=1)
    column_norm, at = right.norm(dim=1).sort(descending=True)
    rows, beaten = torch.arange(len(A), device=A.device), 0
    for first in range(0, len(B), TILE):
        bound = row_norm * column_norm[first]
        rows = rows[bound[rows] > diagonal[rows]]
        columns = right[at[first : first + TILE]].T
        excess = [(left[some] @ columns).amax(dim=1) for some in rows.split(TILE)]
        loses = torch.cat(excess) - diagonal[rows] > 1e-12 * bound[rows]
        rows, beaten = rows[~loses], beaten + int(loses.sum())
    return 1 - beaten / len(A)


@torch.inference_mode()
def spectrum(A: Float[Tensor, "rows d_head"], B: Float[Tensor, "columns d_head"]) -> Spectrum:
    """Return the thin singular value decomposition of A B^T, in double precision.

    Two thin QR decompositions leave a d_head x d_head matrix to decompose. With A = W_V and
    B = W_O^T it is that of W_VO itself, and the directions lie in the residual stream.
    """
    Q_A, R_A = torch.linalg.qr(A.double())
    Q_B, R_B = torch.linalg.qr(B.double())
    U, values, Vh = torch.linalg.svd(R_A @ R_B.T, full_matrices=False)
    return Spectrum(Q_A @ U, values, Q_B @ Vh.T)


@torch.inference_mode()
def eigenvalues(
    A: Float[Tensor, "d_vocab d_head"], B: Float[Tensor, "d_vocab d_head"]
) -> Complex[Tensor, "d_head"]:
    """Return the eigenvalues of A B^T that can differ from zero, which are those of B^T A."""
    return torch.linalg.eigvals(B.double().T @ A.double())


@torch.inference_mode()
def singular_values(
    A: Float[Tensor, "rows d_head"], B: Float[Tensor, "columns d_head"]
) -> Float[Tensor, "d_head"]:
    """Return the singular values of A B^T that can differ from zero, largest first."""
    R_A, R_B = (torch.linalg.qr(factor.double(), mode="r").R for factor in (A, B))
    return torch.linalg.svdvals(R_A @ R_B.T)


@torch.inference_mode()
def summary(
    A: Float[Tensor, "d_vocab d_head"],
    B: Float[Tensor, "d_vocab d_head"],
    values: Float[Tensor, "d_head"],
) -> dict[str, float]:
    """Return what the diagonal and the singular values of M = A B^T say in one number each.

    The copying score is the sum of the eigenvalues over the sum of their absolute values (Elhage et
    al. 2021): 1 where every eigenvalue is positive. The effective rank is the exponential of the
    entropy of the singular values, scaled to sum to 1 (Roy & Vetterli 2007). Both are NaN if M is
    zero.

    Raises:
        ValueError: Rows and columns are not the same tokens, or an entry is not finite.
    """
    _check_square(A, B)
    trace = (A.double() * B.double()).sum()
    entropy = torch.special.entr(values / values.sum()).sum()
    return {
        "trace": trace.item(),
        "frobenius_norm": values.norm().item(),
        "copying_score": (trace / eigenvalues(A, B).abs().sum()).item(),
        "effective_rank": entropy.exp().item(),
    }


def _check_square(A: Float[Tensor, "rows d_head"], B: Float[Tensor, "columns d_head"]) -> None:
    """Raise ValueError unless rows and columns are the same tokens and all entries are finite."""
    if len(A) != len(B):
        raise ValueError(f"a diagonal needs the same tokens twice, not {len(A)} and {len(B)}")
    _check_finite(A, B)
