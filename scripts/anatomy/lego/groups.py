"""Finite groups that act on themselves: the values of a chain and the operators between them."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

BUILT_IN = ("zK for any K from 2 on, such as z5", "d3", "s3", "klein")
MAX_ELEMENTS = 256  # the check of associativity takes time of its cube


@dataclass(frozen=True, eq=False)
class Group:
    """A finite group with its multiplication table; create it with `group` or `built_in`.

    Attributes:
        names: The elements as values, to which root clauses are bound.
        operators: The elements as operators on values; these words differ from the names.
        table: The index of g . x, operators by values.
    """

    names: tuple[str, ...]
    operators: tuple[str, ...]
    table: Int[np.ndarray, "order order"]

    @property
    def order(self) -> int:
        """Return the number of elements."""
        return len(self.names)

    @property
    def identity(self) -> int:
        """Return the index of the neutral element."""
        return int(np.flatnonzero((self.table == np.arange(self.order)).all(axis=1))[0])

    @property
    def inverse(self) -> Int[np.ndarray, "order"]:
        """Return the index of each element's inverse."""
        return np.argmax(self.table == self.identity, axis=1)


def group(
    names: Sequence[str],
    table: Sequence[Sequence[int]] | Int[np.ndarray, "order order"],
    *,
    operators: Sequence[str] | None = None,
) -> Group:
    """Return the group with these elements; row g, column x of the table is the index of g . x.

    By default an operator has the name of its element with a star appended.

    Raises:
        ValueError: A name occurs twice, the table has the wrong size, or an axiom of groups fails;
            the message names elements that break it.
    """
    names = tuple(names)
    operators = tuple(f"{name}*" for name in names) if operators is None else tuple(operators)
    _check_names(names, operators)
    if len(table) != len(names) or any(len(row) != len(names) for row in table):
        raise ValueError(
            f"not a group: {len(names)} elements need a table of {len(names)} rows of {len(names)}"
        )
    products = np.array(table)
    if fault := _fault(names, products):
        raise ValueError(f"not a group: {fault}")
    products.flags.writeable = False
    return Group(names, operators, products)


def _check_names(names: tuple[str, ...], operators: tuple[str, ...]) -> None:
    """Raise ValueError unless there is one operator for each element and all words differ."""
    if not 1 < len(names) <= MAX_ELEMENTS:
        raise ValueError(f"expected a group of 2 to {MAX_ELEMENTS} elements, got {len(names)}")
    if len(operators) != len(names):
        raise ValueError(f"expected {len(names)} operators, got {len(operators)}")
    words = names + operators
    twice = sorted({word for word in words if words.count(word) > 1})
    if twice:
        raise ValueError(f"two elements or operators have the name {twice[0]!r}")


def _fault(names: tuple[str, ...], table: Int[np.ndarray, "order order"]) -> str | None:
    """Return which axiom fails and for which elements; None if all hold."""
    every = np.arange(len(names))
    outside = np.argwhere((table < 0) | (table >= len(names)))
    if len(outside):
        g, x = outside[0]
        return f"not closed: {names[g]} . {names[x]} is {table[g, x]}, which is not an element"
    neutral = np.flatnonzero((table == every).all(axis=1) & (table.T == every).all(axis=1))
    if not len(neutral):
        return f"no identity among {', '.join(names)}"
    solved = (table == neutral[0]) & (table.T == neutral[0])
    if not solved.any(axis=1).all():
        return f"{names[np.argmin(solved.any(axis=1))]} has no inverse"
    for a, row in enumerate(table):  # one at a time, since all take memory of the cubed order
        unequal = np.argwhere(table[row] != row[table])  # (a . b) . c and a . (b . c)
        if len(unequal):
            b, c = unequal[0]
            left, right = names[table[row[b], c]], names[row[table[b, c]]]
            a, b, c = names[a], names[b], names[c]
            return f"not associative: ({a} . {b}) . {c} is {left}, {a} . ({b} . {c}) is {right}"
    return None


def built_in(name: str) -> Group:
    """Return the group of a name in `BUILT_IN`; raise ValueError for any other name.

    `z2` is the group of Zhang et al. (2022): values 0 and 1, `val` keeps and `not` flips.
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
    raise ValueError(f"no group named {name!r}; there are {', '.join(BUILT_IN)}")


def _cyclic(order: int) -> Group:
    """Return addition modulo the order."""
    every = np.arange(order)
    names = tuple(map(str, every))
    table = (every[:, None] + every) % order
    return group(names, table, operators=[f"+{name}" for name in names])


def _dihedral(n: int) -> Group:
    """Return the symmetries of the n-gon: (r, s)(r', s') = (r + (-1)^s r' mod n, s + s' mod 2)."""
    r, s = np.tile(np.arange(n), 2), np.repeat([0, 1], n)
    turned = (r[:, None] + (-1) ** s[:, None] * r) % n
    flipped = (s[:, None] + s) % 2
    return group([f"{'rs'[b]}{a}" for a, b in zip(r, s, strict=True)], turned + n * flipped)


def _symmetric(n: int) -> Group:
    """Return the permutations of 1 to n, named by their values; (g . x)(i) = g(x(i))."""
    every = list(itertools.permutations(range(n)))
    table = [[every.index(tuple(g[i] for i in x)) for x in every] for g in every]
    return group(["".join(str(i + 1) for i in x) for x in every], table)


def classes(group: Group) -> Int[np.ndarray, "order"]:
    """Return the class of each element in the commutator quotient, numbered from 0.

    The class of a product depends on the classes of its factors, not on their order. In a
    commutative group each element is its own class; D3 has two, rotations and reflections.
    """
    products = group.table[group.table, group.inverse[:, None]]  # a b a^-1, by a and b
    commutators = np.unique(group.table[products, group.inverse])
    for _ in range(group.order.bit_length()):  # each pass doubles the length of the products
        commutators = np.unique(group.table[np.ix_(commutators, commutators)])
    smallest = group.table[:, commutators].min(axis=1)  # represents the coset
    return np.unique(smallest, return_inverse=True)[1]
