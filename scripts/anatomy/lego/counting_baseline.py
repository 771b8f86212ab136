"""What can be known of a value without following the chain: the bag of a sentence.

A bag is how often each operator stands in the sentence and which literals do, their order
forgotten; the operators that roots are written with do not count. The best guess from it is the
baseline that an accuracy must exceed before it shows any reasoning. For signs the last variable of
a single path is known from the bag alone: the shortcut of Zhang et al. (2022).
"""

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float, Integer

from scripts.anatomy.lego import graphs
from scripts.anatomy.lego.graphs import ROOT
from scripts.anatomy.lego.groups import Group, classes
from scripts.anatomy.lego.tasks import Batch

MOST_CELLS = 3e7  # of what the exact answer computes: a few seconds and half a gigabyte
SAMPLED_BAGS = 400  # otherwise
ORDERINGS = 2000  # of each sampled bag, to guess by, and as many to score the guess by


def accuracy(
    group: Group,
    parents: Integer[np.ndarray, "graphs n"],
    *,
    operators: Sequence[int] | None = None,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """The best accuracy from the bag at each position, and its standard error.

    `parents` are equally likely graphs: one row for a fixed graph, a large sample for a random
    one. The guess knows the position and the law of graphs, not the graph. At a root it is right,
    since the root's own clause holds the value. Operators are uniform on those given (None: all).
    The standard error is 0 where bags could be enumerated; where they are too many, they are
    sampled. Positions that a missing clause leaves open in some graphs are judged by the others.
    """
    depth, roots = graphs.depths(parents), (parents == ROOT).sum(axis=1)
    n = parents.shape[1]
    used = np.arange(group.order) if operators is None else np.array(operators)
    found, variance = (depth == 0).mean(axis=0), np.zeros(n)
    for count in np.unique(roots).tolist():
        steps = [(depth == d) & (roots == count)[:, None] for d in range(1, depth.max() + 1)]
        law = np.array([step.mean(axis=0) for step in steps]).reshape(-1, n).T
        known, error = _known(group, used, law, n - count, count, rng)
        found, variance = found + known, variance + error**2
    decided = (depth >= 0).mean(axis=0)
    with np.errstate(invalid="ignore"):  # a position that is open in all graphs has no accuracy
        return found / decided, np.sqrt(variance) / decided


def _known(
    group: Group,
    used: Integer[np.ndarray, "operators"],
    law: Float[np.ndarray, "positions depths"],
    total: int,
    roots: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "positions"], Float[np.ndarray, "positions"]]:
    """Probability of a depth in `law` and a right guess there, and its standard error.

    `total` operators and `roots` literals are in the bag. Depths count from 1.
    """
    rows, row = np.unique(law, axis=0, return_inverse=True)
    bags = math.comb(total + len(used) - 1, total) * math.comb(roots + group.order - 2, roots - 1)
    if bags * group.order * law.shape[1] <= MOST_CELLS and (total + 1) ** len(used) < 2**63:
        found = _by_all_bags(group, used, rows, total, roots)
        return found[row], np.zeros(len(row))
    found, error = _by_some_bags(group, used, rows, total, roots, rng)
    return found[row], error[row]


def _by_all_bags(
    group: Group,
    used: Integer[np.ndarray, "operators"],
    law: Float[np.ndarray, "rows depths"],
    total: int,
    roots: int,
) -> Float[np.ndarray, "rows"]:
    """The sum over bags of the largest joint probability with a value.

    Which of the literals is the chain's own the bag does not say: each is equally likely. One of
    them may be taken for the identity, since x -> x . h moves all values alike.
    """
    products = np.tensordot(law, _products(group, used, total, law.shape[1]), axes=1)
    acting = np.argsort(group.table, axis=0)  # by v and x: the g with g . x = v
    found = np.zeros(len(law))
    for others in combinations_with_replacement(range(group.order), roots - 1):
        times = [others.count(x) for x in range(group.order)]
        orders = math.factorial(roots - 1) / math.prod(map(math.factorial, times))
        literals = (group.identity, *others)
        values = sum(products[..., acting[:, x]] for x in literals) / roots
        found += orders / group.order ** (roots - 1) * values.max(axis=-1).sum(axis=-1)
    return found


def _products(
    group: Group, used: Integer[np.ndarray, "operators"], total: int, depths: int
) -> Float[np.ndarray, "depths bags order"]:
    """Joint probability of a bag of operators and the product of the first 1, 2, ... of them.

    Operators are added one by one, to all bags at once. A bag is known by its counts, read as the
    digits of a number.
    """
    digit = (total + 1) ** np.arange(len(used))
    bags = np.zeros(1, dtype=np.int64)
    found = np.zeros((depths, 1, group.order))
    found[:, 0, group.identity] = 1
    undone = np.argsort(group.table, axis=1)  # by g and v: the x with g . x = v
    for step in range(total):
        larger = np.unique(bags[:, None] + digit)
        following = np.zeros((depths, len(larger), group.order))
        for g, place in zip(used, digit, strict=True):
            at = np.searchsorted(larger, bags + place)
            following[:step, at] += found[:step]  # enough operators have acted
            following[step:, at] += found[step:][..., undone[g]]
        bags, found = larger, following / len(used)
    return found


def _by_some_bags(
    group: Group,
    used: Integer[np.ndarray, "operators"],
    law: Float[np.ndarray, "rows depths"],
    total: int,
    roots: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
    """The same by a sample of bags, with the standard error.

    Half of each bag's orderings choose the guess and the others score it, so that chance does not
    flatter it; the best guess is then missed now and then, where it hardly matters.
    """
    bags = rng.choice(used, size=(SAMPLED_BAGS, total)).astype(np.int16)
    literals = rng.integers(group.order, size=(SAMPLED_BAGS, roots))
    guessed, scored = (
        np.tensordot(law, _frequencies(group, bags, literals, law.shape[1], rng), axes=1)
        for _ in range(2)
    )
    guess = guessed.argmax(axis=-1)[..., None]
    right = np.take_along_axis(scored, guess, axis=-1)[..., 0]
    return right.mean(axis=1), right.std(axis=1, ddof=1) / math.sqrt(SAMPLED_BAGS)


def _frequencies(
    group: Group,
    bags: Integer[np.ndarray, "bags total"],
    literals: Integer[np.ndarray, "bags roots"],
    depths: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "depths bags order"]:
    """How often each value is found at each depth when a bag is put in order at random."""
    bag = np.repeat(np.arange(len(bags)), ORDERINGS)
    ordered = rng.permuted(bags[bag], axis=1)
    value = literals[bag, rng.integers(literals.shape[1], size=len(bag))]
    found = np.zeros((depths, len(bags), group.order))
    for depth in range(depths):
        value = group.table[ordered[:, depth], value]
        counts = np.bincount(bag * group.order + value, minlength=found[0].size)
        found[depth] = counts.reshape(found[0].shape) / ORDERINGS
    return found


# --- the shortcut -------------------------------------------------------------------------------


def counted(group: Group, batch: Batch) -> Integer[np.ndarray, "sentences"]:
    """The first root's value with all of the sentence's operators applied, in any order.

    It is the last variable's value when the sentence is a single path (of a group that is not
    commutative: in its class, see `groups.classes`). On a sentence with two chains, a branch or a
    cut, a model that gives it has counted instead of following the chain.
    """
    value = batch.values[:, 0]
    for acting in batch.operators.T:
        value = group.table[acting, value]
    return value


def agreement(
    group: Group,
    predicted: Integer[np.ndarray, "sentences"],
    shortcut: Integer[np.ndarray, "sentences"],
) -> float:
    """Share of predictions that counting allows: 1 is pure counting.

    Without any counting it is one over the number of classes: a half for signs and for D3.
    """
    of = classes(group)
    return float((of[predicted] == of[shortcut]).mean())
