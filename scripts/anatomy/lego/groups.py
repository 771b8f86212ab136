"""Finite groups that act on themselves: the values of a chain and the operators between them."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

BUILT_IN = ("zK for any K from 2 on, such as z5", "d3", "s3", "klein")
MOST_ELEMENTS = 256  # checking associativity takes the cube of it


@dataclass(frozen=True, eq=False)
class Group:
    """A finite group, by its multiplication table; make one with `group` or `built_in`.

    Attributes:
        names: The elements as values: what a root clause is bound to.
        operators: The elements as what acts on a value; other words than the names.
        table: The number of g . x, operators by values.
    """

    names: tuple[str, ...]
    operators: tuple[str, ...]
    table: Int[np.ndarray, "order order"]

    @property
    def order(self) -> int:
        """Number of elements."""
        return len(self.names)

    @property
    def identity(self) -> int:
        """The element that changes nothing."""
        return int(np.flatnonzero((self.table == np.arange(self.order)).all(axis=1))[0])

    @property
    def inverse(self) -> Int[np.ndarray, "order"]:
        """The inverse of each element."""
        return np.argmax(self.table == self.identity, axis=1)


def group(
    names: Sequence[str],
    table: Sequence[Sequence[int]] | Int[np.ndarray, "order order"],
    *,
    operators: Sequence[str] | None = None,
) -> Group:
    """The group with these elements; row g, column x of the table holds the number of g . x.

    An operator is called after its element, with a star behind, where no operators are given.

    Raises:
        ValueError: A name twice, a table of the wrong size, or an axiom of groups that fails, with
            elements that break it.
    """
    names = tuple(names)
    operators = tuple(f"{name}*" for name in names) if operators is None else tuple(operators)
    _check_names(names, operators)
    if len(table) != len(names) or any(len(row) != len(names) for row in table):
        raise ValueError(
            f"not a group: {len(names)} elements need a table of {len(names)} rows of {len(names)}"
        )
    found = np.array(table)
    fault = _fault(names, found)
    if fault:
        raise ValueError(f"not a group: {fault}")
    found.flags.writeable = False
    return Group(names, operators, found)


def _check_names(names: tuple[str, ...], operators: tuple[str, ...]) -> None:
    """Raise ValueError unless elements and operators are as many and all differ."""
    if not 1 < len(names) <= MOST_ELEMENTS:
        raise ValueError(f"a group has 2 to {MOST_ELEMENTS} elements here, not {len(names)}")
    if len(operators) != len(names):
        raise ValueError(f"{len(names)} elements but {len(operators)} operators")
    words = names + operators
    twice = sorted({word for word in words if words.count(word) > 1})
    if twice:
        raise ValueError(f"two elements or operators are called {twice[0]!r}")


def _fault(names: tuple[str, ...], table: Int[np.ndarray, "order order"]) -> str | None:
    """The axiom that fails, and the elements with which it does."""
    every = np.arange(len(names))
    outside = np.argwhere((table < 0) | (table >= len(names)))
    if len(outside):
        g, x = outside[0]
        return f"it is not closed, {names[g]} . {names[x]} is {table[g, x]}, which is no element"
    neutral = np.flatnonzero((table == every).all(axis=1) & (table.T == every).all(axis=1))
    if not len(neutral):
        return f"it has no identity among {', '.join(names)}"
    solved = (table == neutral[0]) & (table.T == neutral[0])
    if not solved.any(axis=1).all():
        return f"{names[np.argmin(solved.any(axis=1))]} has no inverse"
    for a, row in enumerate(table):  # one at a time: all together are the cube of the order
        unequal = np.argwhere(table[row] != row[table])  # (a . b) . c and a . (b . c)
        if len(unequal):
            b, c = unequal[0]
            left, right = names[table[row[b], c]], names[row[table[b, c]]]
            a, b, c = names[a], names[b], names[c]
            return (
                f"it is not associative, ({a} . {b}) . {c} is {left}, {a} . ({b} . {c}) is {right}"
            )
    return None


def built_in(name: str) -> Group:
    """A group by its name, see `BUILT_IN`.

    `z2` is the task as Zhang et al. (2022) publish it: values 0 and 1, `val` keeps and `not` flips.
    Raises ValueError for another name.
    """
    if name == "z2":
        return group(("0", "1"), [[0, 1], [1, 0]], operators=("val", "not"))
    if re.fullmatch(r"z[1-9]\d{0,2}", name):
        return _cyclic(int(name[1:]))
    if name == "d3":
        return _dihedral(3)
    if name == "s3":
        return _symmetric(3)
    if name == "klein":
        every = np.arange(4)
        return group(("00", "01", "10", "11"), every[:, None] ^ every)
    raise ValueError(f"no group is called {name!r}; there are {', '.join(BUILT_IN)}")


def _cyclic(order: int) -> Group:
    """Addition modulo the order."""
    every = np.arange(order)
    names = tuple(map(str, every))
    table = (every[:, None] + every) % order
    return group(names, table, operators=[f"+{name}" for name in names])


def _dihedral(n: int) -> Group:
    """Symmetries of the regular n-gon: (r, s)(r', s') = (r + (-1)^s r' mod n, s + s' mod 2)."""
    r, s = np.tile(np.arange(n), 2), np.repeat([0, 1], n)
    turned = (r[:, None] + (-1) ** s[:, None] * r) % n
    flipped = (s[:, None] + s) % 2
    return group([f"{'rs'[b]}{a}" for a, b in zip(r, s, strict=True)], turned + n * flipped)


def _symmetric(n: int) -> Group:
    """Permutations of 1 to n, written as what they put in order; (g . x)(i) = g(x(i))."""
    every = list(itertools.permutations(range(n)))
    table = [[every.index(tuple(g[i] for i in x)) for x in every] for g in every]
    return group(["".join(str(i + 1) for i in x) for x in every], table)


def classes(group: Group) -> Int[np.ndarray, "order"]:
    """What is left of each element when the order of factors is forgotten, numbered.

    Two elements are in one class when they differ by commutators; a product's class follows from
    the classes of its factors alone. In a commutative group each element is its own class; in D3
    rotations are one and reflections the other.
    """
    products = group.table[group.table, group.inverse[:, None]]  # a b a^-1, by a and b
    commutators = np.unique(group.table[products, group.inverse])
    for _ in range(group.order.bit_length()):  # products of twice as many each time: all, at last
        commutators = np.unique(group.table[np.ix_(commutators, commutators)])
    smallest = group.table[:, commutators].min(axis=1)  # of a coset, which it stands for
    return np.unique(smallest, return_inverse=True)[1]
