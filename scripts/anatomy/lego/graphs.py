"""Dependency graphs: which clause each clause of a sentence uses.

A graph of n clauses is the array of their parents in chain order: the number of the clause that
each one uses, always a smaller one, or `ROOT` for a clause that is bound to a literal. A graph may
be fixed or drawn for each sentence; `Graph` is either kind.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

ROOT = -1
MISSING = -2  # the parent of a clause that uses a variable which no clause defines
UNKNOWN = -1  # the result of `walk` where it needs a missing clause

Graph = Int[np.ndarray, "n"] | Callable[[int, np.random.Generator], Int[np.ndarray, "sentences n"]]


def path(n: int) -> Int[np.ndarray, "n"]:
    """Return a path, the default of Zhang et al. (2022): each clause uses the one before."""
    return chains([n])


def paths(n: int, count: int) -> Int[np.ndarray, "n"]:
    """Return disjoint paths of n clauses in total, as equal in length as n allows."""
    if not 1 <= count <= n:
        raise ValueError(f"expected 1 to {n} paths of {n} clauses, got {count}")
    return chains([n // count + (path < n % count) for path in range(count)])


def chains(lengths: Sequence[int]) -> Int[np.ndarray, "n"]:
    """Return disjoint paths of the given lengths, one after the other in chain order."""
    if min(lengths) < 1:
        raise ValueError(f"expected paths of at least one clause, got {min(lengths)}")
    parents = np.arange(-1, sum(lengths) - 1)
    parents[np.cumsum([0, *lengths[:-1]])] = ROOT
    return parents


def star(n: int) -> Int[np.ndarray, "n"]:
    """Return a star: every clause uses the root."""
    return np.where(np.arange(n) == 0, ROOT, 0)


def balanced(n: int) -> Int[np.ndarray, "n"]:
    """Return a binary tree filled level by level."""
    return (np.arange(n) - 1) // 2


def recursive(n: int) -> Graph:
    """Return random trees: each clause uses any earlier clause, all equally likely."""

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        parents = rng.integers(np.maximum(np.arange(n), 1), size=(count, n))
        parents[:, 0] = ROOT
        return parents

    return draw


def branch(n: int) -> Graph:
    """Return paths whose last clause uses any earlier clause except its neighbour."""
    if n < 3:
        raise ValueError(f"a branch needs at least 3 clauses, got {n}")

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        parents = np.tile(path(n), (count, 1))
        parents[:, -1] = rng.integers(n - 2, size=count)
        return parents

    return draw


def varied(n: int, *, min_length: int) -> Graph:
    """Return paths of `min_length` to n clauses, uniformly; the rest is a second path."""
    if not 1 <= min_length <= n:
        raise ValueError(f"min_length: expected 1 to {n} clauses, got {min_length}")

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        length = rng.integers(min_length, n + 1, size=(count, 1))
        return np.where(np.arange(n) == length, ROOT, path(n))

    return draw


def severed(n: int) -> Graph:
    """Return paths that are cut at any clause except the first two and the last."""
    if n < 4:
        raise ValueError(f"a path needs at least 4 clauses to be cut in the middle, got {n}")

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        cut = rng.integers(2, n - 1, size=(count, 1))
        return np.where(np.arange(n) == cut, MISSING, path(n))

    return draw


def draw(graph: Graph, count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
    """Return the parents in `count` sentences; a view of one row if the graph is fixed."""
    return graph(count, rng) if callable(graph) else np.broadcast_to(graph, (count, len(graph)))


def walk(
    parents: Int[np.ndarray, "sentences n"],
    at_roots: Int[np.ndarray, "sentences n"],
    step: Callable[[int, Int[np.ndarray, "sentences"]], Int[np.ndarray, "sentences"]],
) -> Int[np.ndarray, "sentences n"]:
    """Return values that are passed from the roots along the graph.

    `step` takes a clause's number and the values at its parents, and returns the values at the
    clause. Clauses that depend on a missing one get `UNKNOWN`.
    """
    values = np.zeros_like(at_roots, shape=parents.shape)  # zeros: `step` may index by them
    rows = np.arange(len(parents))
    for k, parent in enumerate(parents.T):
        above = values[rows, parent]  # another clause's value where there is no parent
        below = np.where((parent == MISSING) | (above < 0), UNKNOWN, step(k, above))
        values[:, k] = np.where(parent == ROOT, at_roots[:, k], below)
    return values


def depths(parents: Int[np.ndarray, "sentences n"]) -> Int[np.ndarray, "sentences n"]:
    """Return the steps from each clause to its root; `UNKNOWN` where there is no root."""
    return walk(parents, np.zeros_like(parents), lambda _, depth: depth + 1)
