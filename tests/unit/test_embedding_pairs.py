"""Top pairs, rows, diagonal and spectrum of a factored matrix, against the matrix itself."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from scripts.anatomy import seeding
from scripts.anatomy.embedding import pairs

ORDERS = list(pairs.KEYS)
NUMPY_KEYS = {"largest": lambda m: m, "smallest": np.negative, "absolute": np.abs}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles and chunks so small that even these matrices have many, the last ones cut off."""
    monkeypatch.setattr(pairs, "TILE", 16)
    monkeypatch.setattr(pairs, "PAIRS_PER_CHUNK", 50)


def factors(rows=150, columns=131, d_head=8, *, tail=0.0, seed=0):
    """Normal factors whose rows are scaled by a log-normal of that spread."""
    rng = seeding.numpy_generator(seed, "factors")
    made = []
    for count in (rows, columns):
        scale = np.exp(tail * rng.normal(size=(count, 1)))
        made.append(torch.from_numpy(rng.normal(size=(count, d_head)) * scale).float())
    return made


def integers(rows, columns, d_head, *, seed=0, low=-2, high=2):
    """Factors of few small whole numbers: very many exact ties."""
    rng = seeding.numpy_generator(seed, "integers")
    shapes = (rows, d_head), (columns, d_head)
    return [torch.from_numpy(rng.integers(low, high + 1, size=s)).float() for s in shapes]


def product(A, B):
    """M in double precision."""
    return A.double().numpy() @ B.double().numpy().T


def dense_top(M, k, order, allowed=None):
    """Ids and values of the first k allowed entries, with the ties broken by row, then column."""
    allowed = np.ones(M.shape, dtype=bool) if allowed is None else allowed
    rows, columns = allowed.nonzero()
    values = M[rows, columns]
    at = np.lexsort((columns, rows, -NUMPY_KEYS[order](values)))[:k]
    return rows[at].tolist(), columns[at].tolist(), values[at]


def assert_same(actual, expected, rtol=1e-12):
    assert actual.rows.tolist() == expected[0]
    assert actual.columns.tolist() == expected[1]
    np.testing.assert_allclose(actual.values.numpy(), expected[2], rtol=rtol)
    assert actual.values.dtype == torch.float64


# --- top pairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tail", [0, 0.5, 2])
@pytest.mark.parametrize("k", [1, 50, 1000])
def test_top_pairs_are_those_of_the_dense_matrix(order, tail, k):
    """The top pairs equal those of the dense matrix."""
    A, B = factors(tail=tail)
    assert_same(pairs.top_pairs(A, B, k, order=order), dense_top(product(A, B), k, order), 1e-10)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("d_head", [1, 3])
def test_ties_are_in_the_order_of_their_ids(order, d_head):
    """Equal entries are ordered by their ids."""
    A, B = integers(70, 90, d_head)
    for k in (1, 20, 700):
        assert_same(pairs.top_pairs(A, B, k, order=order), dense_top(product(A, B), k, order))


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 1000),
    st.sampled_from(ORDERS),
    st.floats(0, 1),
    st.floats(0.05, 1),
    st.booleans(),
)
@hypothesis_settings(max_examples=150)
def test_any_tied_factors_and_filters(rows, columns, d_head, seed, order, part, share, apart):
    """Any filters on any tied factors give the pairs of the filtered matrix."""
    A, B = integers(rows, columns, d_head, seed=seed)
    rng = seeding.numpy_generator(seed, "filters")
    keep = [rng.random(size) < share for size in (rows, columns)]
    word_of = rng.integers(5, size=max(rows, columns))
    allowed = np.outer(*keep)
    if apart:
        allowed &= word_of[:rows, None] != word_of[:columns]
    options = {
        "order": order,
        "allowed_rows": torch.from_numpy(keep[0]),
        "allowed_columns": torch.from_numpy(keep[1]),
        "word_of": torch.from_numpy(word_of) if apart else None,
    }
    pairs_there = int(allowed.sum())
    if not pairs_there:
        with pytest.raises(ValueError, match="there are 0 pairs"):
            pairs.top_pairs(A, B, 1, **options)
        return
    k = max(1, round(part * pairs_there))
    actual = pairs.top_pairs(A, B, k, **options)
    assert_same(actual, dense_top(product(A, B), k, order, allowed))


@given(st.integers(0, 10_000), st.floats(0, 3), st.sampled_from(ORDERS), st.integers(1, 64))
@hypothesis_settings(max_examples=60)
def test_any_shape_of_the_tail(seed, tail, order, d_head):
    """Any distribution of norms gives the pairs of the dense matrix."""
    A, B = factors(60, 45, d_head, tail=tail, seed=seed)
    assert_same(
        pairs.top_pairs(A, B, 30, order=order), dense_top(product(A, B), 30, order), rtol=1e-8
    )


@pytest.mark.parametrize("order", ORDERS)
def test_without_the_diagonal(order):
    """Pairs on the diagonal are left out if asked."""
    A, _ = factors(120, 120, tail=1)
    B = -A if order == "smallest" else A
    M = product(A, B)
    assert dense_top(M, 1, order)[0] == dense_top(M, 1, order)[1]
    off = ~np.eye(120, dtype=bool)
    actual = pairs.top_pairs(A, B, 40, order=order, word_of=torch.arange(120))
    # M is symmetric: which of a pair's two entries is first is a matter of the last bit
    np.testing.assert_allclose(actual.values.numpy(), dense_top(M, 40, order, off)[2], rtol=1e-10)
    assert (actual.rows != actual.columns).all()


@pytest.mark.parametrize("order", ORDERS)
def test_entries_that_single_precision_confuses(order):
    """Entries that single precision confuses are ordered in double precision."""
    rng = seeding.numpy_generator(0, "near")
    A, B = (torch.from_numpy(1 + 1e-5 * rng.normal(size=(100, 16))) for _ in range(2))
    B = -B if order == "smallest" else B
    assert (product(A, B) / np.sign(product(A, B)) - 16).std() < 1e-3
    actual, expected = pairs.top_pairs(A, B, 40, order=order), dense_top(product(A, B), 40, order)
    assert_same(actual, expected)
    single = dense_top((A.float() @ B.float().T).numpy(), 40, order)
    assert single[:2] != expected[:2]


@pytest.mark.parametrize("sign", [1, -1])
def test_planted_pairs_come_first(sign):
    """Planted pairs come first."""
    A, B = factors(300, 300, 16)
    planted = [(5, 250), (123, 4), (299, 299)]
    for strength, (row, column) in enumerate(planted, start=10):
        direction = torch.nn.functional.one_hot(torch.tensor(strength % 16), 16)
        A[row], B[column] = 3.0 * strength * direction, sign * direction * 30
    for order in ("absolute", "largest" if sign == 1 else "smallest"):
        actual = pairs.top_pairs(A, B, 3, order=order)
        assert (
            list(zip(actual.rows.tolist(), actual.columns.tolist(), strict=True)) == planted[::-1]
        )
        assert actual.values.tolist() == [sign * 90 * strength for strength in (12, 11, 10)]


def test_steep_norms_spare_tiles_and_flat_ones_do_not():
    """Steep norms compute few tiles, flat norms all."""
    assert pairs.top_pairs(*factors(600, 600, tail=1), 10).scanned < 0.1
    ones = torch.ones(90, 3)
    assert pairs.top_pairs(ones, ones * torch.tensor([1.0, -1, 1]), 10).scanned == 1


def test_a_direction_that_one_factor_lacks_hides_no_tiles():
    """A direction that one factor lacks does not weaken the bound."""
    A, B = factors(600, 600, tail=1)
    plain = pairs.top_pairs(A, B, 10)
    A, B = (torch.cat([factor, factor.new_zeros(600, 1)], dim=1) for factor in (A, B))
    A[:, -1] = 1e4
    actual = pairs.top_pairs(A, B, 10)
    assert actual.rows.tolist() == plain.rows.tolist()
    assert actual.scanned == pytest.approx(plain.scanned, abs=0.01)


@pytest.mark.parametrize("zero", [(0,), (1,), (0, 1)])
def test_a_head_of_zeros_costs_one_tile(zero):
    """A head of zeros computes one tile."""
    AB = factors(200, 200)
    for which in zero:
        AB[which] = torch.zeros(200, 8)
    actual = pairs.top_pairs(*AB, 10)
    assert_same(actual, ([0] * 10, list(range(10)), np.zeros(10)))
    assert actual.scanned == pytest.approx(16 * 16 / 200**2)


def test_the_balanced_factors():
    """Balanced factors have the same product, and the singular values as Gram matrices."""
    A, B = factors(tail=1)
    A[:, 3], B[:, 5] = 1000 * A[:, 2], 0  # ranks that are not full
    left, right = pairs.balance(A, B)
    M = product(A, B)
    np.testing.assert_allclose((left @ right.T).numpy(), M, atol=1e-9 * np.abs(M).max())
    A, B = factors(tail=1)
    grams = [(factor.T @ factor).numpy() for factor in pairs.balance(A, B)]
    values = np.linalg.svd(product(A, B), compute_uv=False)[:8]
    for gram in grams:
        np.testing.assert_allclose(gram, np.diag(values), atol=1e-4 * values[0])


class LargestTensor(TorchDispatchMode):
    """Remembers the most bytes that a tensor made inside it has had."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, list | tuple) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.nbytes)
        return made


@pytest.mark.parametrize("flat", [False, True])
def test_no_tensor_is_larger_than_a_tile_or_a_factor(flat, monkeypatch):
    """No intermediate tensor exceeds a tile or a factor."""
    monkeypatch.setattr(pairs, "TILE", 128)
    A, B = (torch.ones(900, 4),) * 2 if flat else factors(900, 900, 4, tail=1)
    with LargestTensor() as memory:
        pairs.top_pairs(A, B, 20, order="absolute", word_of=torch.arange(900))
    ids_of_a_tile, factor_in_double = 2 * 128**2 * 8, A.nbytes * 2
    assert 0 < memory.largest <= max(ids_of_a_tile, factor_in_double) < 900**2 * 4 / 10


@pytest.mark.parametrize("k", [0, 13])
def test_more_pairs_than_there_are_is_refused(k):
    """Asking for more pairs than there are is refused."""
    A, B = factors(4, 3)
    with pytest.raises(ValueError, match=f"k is {k}; there are 12 pairs"):
        pairs.top_pairs(A, B, k)
    with pytest.raises(ValueError, match="there are 9 pairs"):
        pairs.top_pairs(A, B, 10, word_of=torch.arange(4))
    with pytest.raises(ValueError, match="there are 3 pairs"):
        pairs.top_columns(A, B, torch.tensor([0]), 4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(bad):
    """Factors with NaN or infinity are refused."""
    A, B = factors()
    B[7, 2] = bad
    for call in (
        lambda: pairs.top_pairs(A, B, 5),
        lambda: pairs.top_columns(A, B, torch.tensor([0]), 5),
        lambda: pairs.identity_share(A[:131], B),
        lambda: pairs.summary(A[:131], B, torch.ones(1)),
    ):
        with pytest.raises(ValueError, match="not finite"):
            call()


# --- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tied", [False, True])
def test_top_columns_are_those_of_the_dense_rows(order, tied):
    """The top columns of rows equal those of the dense matrix."""
    A, B = integers(40, 131, 2) if tied else factors(40, 131, tail=1)
    allowed = seeding.numpy_generator(0, "allowed").random(131) < 0.7
    chosen = [3, 39, 3, 0]
    for mask in (None, allowed):
        actual = pairs.top_columns(
            A,
            B,
            torch.tensor(chosen),
            25,
            order=order,
            allowed_columns=mask if mask is None else torch.from_numpy(mask),
        )
        for row, columns, values in zip(chosen, *actual, strict=True):
            M = product(A[[row]], B)
            expected = dense_top(M, 25, order, None if mask is None else mask[None])
            assert columns.tolist() == expected[1]
            np.testing.assert_allclose(values.numpy(), expected[2], rtol=1e-10)


def test_top_columns_that_single_precision_confuses():
    """Columns that single precision confuses are ordered in double precision."""
    rng = seeding.numpy_generator(0, "near")
    A, B = (torch.from_numpy(1 + 1e-6 * rng.normal(size=(400, 16))) for _ in range(2))
    columns, _ = pairs.top_columns(A, B, torch.tensor([9]), 30)
    assert columns[0].tolist() == dense_top(product(A[[9]], B), 30, "largest")[1]


# --- diagonal and spectrum ----------------------------------------------------------------------


@pytest.mark.parametrize("copying", [0, 0.2, 0.5, 1, 3])
def test_identity_share_is_that_of_the_dense_matrix(copying):
    """The identity share equals that of the dense matrix."""
    A, B = factors(300, 300, 12, tail=0.5)
    B = B + copying * A
    M = product(A, B)
    expected = (M.diagonal() >= M.max(axis=1)).mean()
    assert (0 < expected < 1) or copying == 0
    assert pairs.identity_share(A, B) == pytest.approx(expected, abs=1e-12)


def test_identity_share_counts_equal_tokens_as_the_same():
    """Equal embeddings count as the same token."""
    A, _ = factors(200, 200, 8)
    A = A / A.norm(dim=1, keepdim=True)
    A[50:90] = A[10]
    assert pairs.identity_share(A, A) == 1
    assert pairs.identity_share(A, -A) == 0
    A[50:90] *= 1.001  # now longer than the tenth, which they beat
    assert pairs.identity_share(A, A) == pytest.approx(1 - 1 / 200)


def low_rank(A, B):
    """Factors whose product has a lower rank than they have columns."""
    return torch.cat([A, A], dim=1), torch.cat([B, -0.5 * B], dim=1)


@pytest.mark.parametrize("shape", [(150, 131, 8), (131, 150, 8), (5, 40, 8), (30, 30, 30)])
@pytest.mark.parametrize("deficient", [False, True])
def test_spectrum_is_that_of_the_dense_matrix(shape, deficient):
    """The spectrum equals that of the dense matrix."""
    A, B = factors(*shape, tail=0.5)
    A, B = low_rank(A, B) if deficient else (A, B)
    M, actual = product(A, B), pairs.spectrum(A, B)
    expected = np.linalg.svd(M, compute_uv=False)
    rank = len(actual.values)
    assert rank == min(min(A.shape), min(B.shape))
    np.testing.assert_allclose(actual.values, expected[:rank], atol=1e-10 * expected[0])
    assert (expected[rank:] < 1e-10 * expected[0]).all()
    rebuilt = (actual.left * actual.values) @ actual.right.T
    np.testing.assert_allclose(rebuilt, M, atol=1e-10 * expected[0])
    for side in (actual.left, actual.right):
        np.testing.assert_allclose(side.T @ side, np.eye(rank), atol=1e-10)


def test_spectrum_in_the_residual_stream():
    """The singular vectors of W_V W_O lie in the residual stream."""
    W_V, W_O = (factor.double() for factor in factors(48, 48, 6))
    actual = pairs.spectrum(W_V, W_O)
    np.testing.assert_allclose(
        W_V @ W_O.T @ actual.right, actual.left * actual.values, atol=1e-10 * actual.values[0]
    )


def summarised(A: torch.Tensor, B: torch.Tensor) -> dict[str, float]:
    return pairs.summary(A, B, pairs.singular_values(A, B))


@pytest.mark.parametrize("deficient", [False, True])
def test_eigenvalues_and_summary_are_those_of_the_dense_matrix(deficient):
    """Eigenvalues and summaries equal those of the dense matrix."""
    A, B = factors(120, 120, 9)
    A, B = low_rank(A, B + A) if deficient else (A, B + A)
    M = product(A, B)
    expected = np.linalg.eigvals(M)
    scale = np.abs(expected).max()
    actual = pairs.eigenvalues(A, B).numpy()
    for value in actual:
        assert np.abs(expected - value).min() < 1e-10 * scale
    assert np.sort(np.abs(actual))[-9:] == pytest.approx(np.sort(np.abs(expected))[-9:], rel=1e-10)
    values = np.linalg.svd(M, compute_uv=False)
    p = values[:9] / values.sum()
    actual = pairs.singular_values(A, B).numpy()
    assert actual[:9] == pytest.approx(values[:9], rel=1e-10, abs=1e-10 * values[0])
    assert (actual[9:] < 1e-10 * values[0]).all()
    assert summarised(A, B) == pytest.approx(
        {
            "trace": np.trace(M),
            "frobenius_norm": np.linalg.norm(M),
            "copying_score": expected.sum().real / np.abs(expected).sum(),
            "effective_rank": math.exp(-(p * np.log(p)).sum()),
        },
        rel=1e-10,
    )


def test_summaries_that_are_known():
    """Matrices of known structure have the known summaries."""
    Q = torch.linalg.qr(factors(60, 1, 5)[0])[0]
    copies, inverts = summarised(Q, 2 * Q), summarised(Q, -2 * Q)
    assert copies == pytest.approx(
        {
            "trace": 10,
            "frobenius_norm": math.sqrt(20),
            "copying_score": 1,
            "effective_rank": 5,
        },
        rel=1e-5,  # Q is orthonormal in single precision
    )
    assert inverts["copying_score"] == pytest.approx(-1)
    rotates = summarised(Q[:, [0, 1]], Q[:, [1, 0]] * torch.tensor([1, -1]))
    assert rotates["copying_score"] == pytest.approx(0, abs=1e-6)
    nothing = summarised(Q, 0 * Q)
    assert math.isnan(nothing["copying_score"]) and math.isnan(nothing["effective_rank"])


def test_a_diagonal_of_different_tokens_is_refused():
    """A diagonal over different tokens is refused."""
    for call in (pairs.identity_share, summarised):
        with pytest.raises(ValueError, match="not 150 and 131"):
            call(*factors())
