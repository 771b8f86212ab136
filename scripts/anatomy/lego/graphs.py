"""Dependency graphs: which clause each clause of a sentence uses.

A graph of n clauses is the array of their parents in chain order: the number of the clause that
each one uses, always a smaller one, or `ROOT` for a clause that is bound to a literal. A graph may
be drawn anew for each sentence; `Graph` is either kind.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

ROOT = -1
MISSING = -2  # the parent of a clause that uses a variable which no clause defines
UNKNOWN = -1  # what `walk` finds where a missing clause would be needed

Graph = Int[np.ndarray, "n"] | Callable[[int, np.random.Generator], Int[np.ndarray, "sentences n"]]


def path(n: int) -> Int[np.ndarray, "n"]:
    """Each clause uses the one before: the default of Zhang et al. (2022)."""
    return chains([n])


def paths(n: int, count: int) -> Int[np.ndarray, "n"]:
    """Disjoint paths, one after the other in chain order, as equal in length as n allows."""
    if not 1 <= count <= n:
        raise ValueError(f"{n} clauses do not make {count} paths")
    return chains([n // count + (path < n % count) for path in range(count)])


def chains(lengths: Sequence[int]) -> Int[np.ndarray, "n"]:
    """Disjoint paths of the given lengths."""
    if min(lengths) < 1:
        raise ValueError(f"a path has at least one clause, not {min(lengths)}")
    parents = np.arange(-1, sum(lengths) - 1)
    parents[np.cumsum([0, *lengths[:-1]])] = ROOT
    return parents


def star(n: int) -> Int[np.ndarray, "n"]:
    """Every clause uses the root."""
    return np.where(np.arange(n) == 0, ROOT, 0)


def balanced(n: int, *, arity: int = 2) -> Int[np.ndarray, "n"]:
    """A tree filled level by level, each clause used by up to `arity` others."""
    if arity < 1:
        raise ValueError(f"a tree has an arity of at least 1, not {arity}")
    return (np.arange(n) - 1) // arity


def recursive(n: int) -> Graph:
    """Trees in which each clause uses any of those before it, all equally likely."""

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        parents = rng.integers(np.maximum(np.arange(n), 1), size=(count, n))
        parents[:, 0] = ROOT
        return parents

    return draw


def branch(n: int) -> Graph:
    """A path whose last clause hangs off any clause but its neighbour: a tree with two leaves."""
    if n < 3:
        raise ValueError(f"a branch needs at least 3 clauses, not {n}")

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        parents = np.tile(path(n), (count, 1))
        parents[:, -1] = rng.integers(n - 2, size=count)
        return parents

    return draw


def varied(n: int, *, min_length: int) -> Graph:
    """A path of `shortest` to n clauses, all lengths equally likely; the rest is a second path."""
    if not 1 <= min_length <= n:
        raise ValueError(f"a path of at least {min_length} clauses does not fit into {n}")

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        length = rng.integers(min_length, n + 1, size=(count, 1))
        return np.where(np.arange(n) == length, ROOT, path(n))

    return draw


def severed(n: int) -> Graph:
    """A path that is cut at any of its clauses but the first two and the last."""
    if n < 4:
        raise ValueError(f"a path has a middle to be cut from 4 clauses on, not {n}")

    def draw(count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
        cut = rng.integers(2, n - 1, size=(count, 1))
        return np.where(np.arange(n) == cut, MISSING, path(n))

    return draw


def draw(graph: Graph, count: int, rng: np.random.Generator) -> Int[np.ndarray, "sentences n"]:
    """The parents in `count` sentences; a view of one row where the graph is fixed."""
    return graph(count, rng) if callable(graph) else np.broadcast_to(graph, (count, len(graph)))


def walk(
    parents: Int[np.ndarray, "sentences n"],
    at_roots: Int[np.ndarray, "sentences n"],
    step: Callable[[int, Int[np.ndarray, "sentences"]], Int[np.ndarray, "sentences"]],
) -> Int[np.ndarray, "sentences n"]:
    """Carry something from the roots along the graph.

    `step` takes a clause's number and what was found at its parents, and gives what is there.
    Clauses that hang on a missing one get `UNKNOWN`.
    """
    found = np.zeros_like(at_roots, shape=parents.shape)  # zeros: `step` may look them up
    rows = np.arange(len(parents))
    for k, parent in enumerate(parents.T):
        above = found[rows, parent]  # of some other clause where there is no parent
        below = np.where((parent == MISSING) | (above < 0), UNKNOWN, step(k, above))
        found[:, k] = np.where(parent == ROOT, at_roots[:, k], below)
    return found


def depths(parents: Int[np.ndarray, "sentences n"]) -> Int[np.ndarray, "sentences n"]:
    """Steps from each clause to its root; `UNKNOWN` where there is none."""
    return walk(parents, np.zeros_like(parents), lambda _, depth: depth + 1)


def roots(parents: Int[np.ndarray, "sentences n"]) -> Int[np.ndarray, "sentences n"]:
    """The root that each clause hangs on; `UNKNOWN` where there is none."""
    own = np.broadcast_to(np.arange(parents.shape[1]), parents.shape)
    return walk(parents, own, lambda _, root: root)
