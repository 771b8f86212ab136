"""Tables against the groups they are of, and tables that are of none."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scripts.anatomy.lego import groups

NAMES = ["z2", "z3", "z5", "z26", "d3", "s3", "klein"]


@pytest.mark.parametrize("name", NAMES)
def test_axioms_by_plain_loops(name: str) -> None:
    """Built-in groups satisfy the axioms."""
    group = groups.built_in(name)
    table, every = group.table.tolist(), range(group.order)
    for a, b, c in itertools.product(every, repeat=3):
        assert table[table[a][b]][c] == table[a][table[b][c]]
    for a in every:
        assert table[a][group.identity] == a == table[group.identity][a]
        assert table[a][group.inverse[a]] == group.identity == table[group.inverse[a]][a]
    words = group.names + group.operators
    assert len(set(words)) == 2 * group.order


def test_signs_as_published() -> None:
    """z2 has the published values and operators."""
    z2 = groups.built_in("z2")
    assert z2.names == ("0", "1")
    assert z2.operators == ("val", "not")
    for x in (0, 1):
        assert z2.table[z2.operators.index("val"), x] == x
        assert z2.table[z2.operators.index("not"), x] == 1 - x


def test_triangle_by_matrices() -> None:
    """D3 is isomorphic to the symmetries of a triangle as matrices."""
    d3 = groups.built_in("d3")
    turn = 2 * np.pi / 3
    matrices = [
        np.array([[np.cos(r * turn), -np.sin(r * turn)], [np.sin(r * turn), np.cos(r * turn)]])
        @ np.diag([1.0, (-1.0) ** s])
        for s, r in itertools.product(range(2), range(3))
    ]
    for g, x in itertools.product(range(6), repeat=2):
        np.testing.assert_allclose(matrices[g] @ matrices[x], matrices[d3.table[g, x]], atol=1e-12)
    assert d3.names == ("r0", "r1", "r2", "s0", "s1", "s2")


def test_permutations_compose() -> None:
    """S3 composes permutations in the documented order."""
    s3 = groups.built_in("s3")
    for g, x in itertools.product(range(6), repeat=2):
        acting, on = ([int(digit) - 1 for digit in s3.names[k]] for k in (g, x))
        assert s3.names[s3.table[g, x]] == "".join(str(acting[on[i]] + 1) for i in range(3))


def test_commutative_groups() -> None:
    """Cyclic groups and the Klein group are commutative, with the right orders of elements."""
    z5, klein = groups.built_in("z5"), groups.built_in("klein")
    assert z5.table[3, 4] == 2
    assert (z5.names[3], z5.operators[3]) == ("3", "+3")
    assert klein.inverse.tolist() == [0, 1, 2, 3]
    for name in NAMES:
        table = groups.built_in(name).table
        assert (table == table.T).all() == (name not in ("d3", "s3"))


@given(st.sampled_from(["z2", "z5", "d3", "klein"]), st.data())
@hypothesis_settings(max_examples=40)
def test_any_order_of_the_elements_will_do(name: str, data: st.DataObject) -> None:
    """A group's table is accepted in any order of its elements."""
    known = groups.built_in(name)
    order = np.array(data.draw(st.permutations(range(known.order))))
    new = np.argsort(order)  # numbers of the old elements
    relabelled = groups.group(
        [known.names[old] for old in order], new[known.table[np.ix_(order, order)]]
    )
    assert relabelled.identity == new[known.identity]
    assert relabelled.inverse.tolist() == new[known.inverse[order]].tolist()


@given(st.sampled_from(["z2", "z5", "d3", "klein"]), st.data())
@hypothesis_settings(max_examples=40)
def test_one_wrong_entry_is_refused(name: str, data: st.DataObject) -> None:
    """A table with one wrong entry is refused."""
    known = groups.built_in(name)
    number = st.integers(0, known.order - 1)
    g, x, value = (data.draw(number) for _ in range(3))
    table = known.table.copy()
    table[g, x] = (table[g, x] + 1 + value) % (known.order + 1)  # another element, or none
    with pytest.raises(ValueError, match="^not a group: "):
        groups.group(known.names, table)


# Every element has an inverse, and rows and columns hold each element once
LOOP = [[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]]


@pytest.mark.parametrize(
    ("names", "table", "message"),
    [
        ("ab", [[0, 1], [1, 2]], "not closed: b . b is 2, which is not an element"),
        ("ab", [[0, 1], [-1, 0]], "not closed: b . a is -1, which is not an element"),
        ("ab", [[0, 0], [1, 1]], "no identity among a, b"),
        ("ab", [[0, 1], [1, 1]], "b has no inverse"),
        (
            "abcde",
            LOOP,
            "not associative: (b . b) . c is c, b . (b . c) is e",
        ),
        ("abc", [[0, 1], [1, 0]], "3 elements need a table of 3 rows of 3"),
        ("ab", [[0, 1], [1]], "2 elements need a table of 2 rows of 2"),
    ],
)
def test_failing_axiom_is_named(names: str, table: list[list[int]], message: str) -> None:
    """The message names the axiom that fails, and elements that break it."""
    with pytest.raises(ValueError) as error:
        groups.group(tuple(names), table)
    assert str(error.value) == f"not a group: {message}"


def test_names_that_are_refused() -> None:
    """Repeated names and unknown groups are refused with the name."""
    with pytest.raises(ValueError, match="'a'"):
        groups.group(("a", "a"), [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="'b'"):
        groups.group(("a", "b"), [[0, 1], [1, 0]], operators=("b", "c"))
    with pytest.raises(ValueError, match="2 operators, got 1"):
        groups.group(("a", "b"), [[0, 1], [1, 0]], operators=("b",))
    for name in ("q8", "z0", "z", "z-3", "d3 "):
        with pytest.raises(ValueError, match=f"no group named '{name}'; there are zK"):
            groups.built_in(name)
    for name in ("z1", "z257"):
        with pytest.raises(ValueError, match="2 to 256 elements"):
            groups.built_in(name)


@pytest.mark.parametrize("name", NAMES)
def test_classes_ignore_the_order_of_factors(name: str) -> None:
    """Products in another order have the same class, and classes are minimal."""
    group = groups.built_in(name)
    found = groups.classes(group)
    for a, b, x in itertools.product(range(group.order), repeat=3):
        one, other = (group.table[group.table[g, h], x] for g, h in ((a, b), (b, a)))
        assert found[one] == found[other]
    expected = [0, 0, 0, 1, 1, 1] if name == "d3" else list(range(group.order))
    if name == "s3":
        expected = [0, 1, 1, 0, 0, 1]  # even and odd
    assert found.tolist() == expected
