"""Seeds depend on their purpose, and never change."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scripts.anatomy.seeding import derive, numpy_generator, torch_generator

ROOT = Path(__file__).parents[2]
PURPOSES = st.lists(st.one_of(st.text(max_size=4), st.integers(-5, 5)), max_size=4)


def test_known_values() -> None:
    """If these numbers change, all results change."""
    assert derive(0) == 6197007067532723406
    assert derive(1, "corpus", 3) == 4919527819967891392
    assert numpy_generator(1, "corpus").integers(1000, size=3).tolist() == [347, 50, 482]
    assert torch.randint(1000, (3,), generator=torch_generator(1, "corpus")).tolist() == [
        196,
        662,
        714,
    ]


@given(PURPOSES, PURPOSES, st.integers(0, 2**40))
def test_seeds_differ_exactly_where_purposes_do(
    one: list[str | int], other: list[str | int], seed: int
) -> None:
    assert (derive(seed, *one) == derive(seed, *other)) == (one == other)
    assert 0 <= derive(seed, *one) < 2**63


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc"), ("ab", "c")),
        ((1,), ("1",)),
        (("a",), ("a", "")),
        (("a,b",), ("a", "b")),
        (('a","b',), ("a", "b")),
        ((1, 2), (12,)),
        ((), ("",)),
    ],
)
def test_types_and_boundaries_of_purposes_count(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
) -> None:
    assert derive(0, *one) != derive(0, *other)


def test_a_seed_and_a_purpose_are_different() -> None:
    assert derive(1, 2) != derive(2, 1)


def test_numpy_integers_are_accepted_and_other_types_refused() -> None:
    assert derive(np.int64(3), "a", np.int32(4)) == derive(3, "a", 4)
    with pytest.raises(TypeError):
        derive(0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        derive(0, None)  # type: ignore[arg-type]


def test_generators_repeat_and_do_not_change_the_global_ones() -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, second = (numpy_generator(7, "a").normal(size=4) for _ in range(2))
    assert (first == second).all()
    one, two = (torch.randn(4, generator=torch_generator(7, "a")) for _ in range(2))
    assert one.equal(two)
    assert not one.equal(torch.randn(4, generator=torch_generator(7, "b")))
    assert torch_state.equal(torch.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()


def test_numpy_generators_do_not_import_torch() -> None:
    code = (
        "import sys; from scripts.anatomy.seeding import numpy_generator as g;"
        "g(0, 'a').random(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
