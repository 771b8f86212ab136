"""The counting baseline: the best accuracy that is possible without following the chain.

The best guess uses the bag of a sentence: the count of each operator and the literals, without
their order. Operators of roots do not count. An accuracy shows reasoning only above this baseline.
For signs the bag determines the last variable of a single path: the shortcut of Zhang et al.
(2022).
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

MAX_CELLS = 3e7  # of the largest array of the exact answer: a few seconds and half a gigabyte
SAMPLED_BAGS = 400  # where the exact answer is too large
ORDERINGS = 2000  # of each sampled bag for the guess, and as many to score the guess


def accuracy(
    group: Group,
    parents: Integer[np.ndarray, "graphs n"],
    *,
    operators: Sequence[int] | None = None,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return the best accuracy from the bag at each position, and its standard error.

    `parents` are equally likely graphs: one row for a fixed graph, a large sample for a random
    one. The guess may use the position and the distribution of graphs, not the graph. It is always
    right at a root, whose own clause holds the value. Operators are uniform on those given (None:
    all). Bags are enumerated, with a standard error of 0, or sampled where they are too many.
    A position without a value in some graphs, because of a missing clause, is judged by the others.
    """
    depth, roots = graphs.depths(parents), (parents == ROOT).sum(axis=1)
    n = parents.shape[1]
    used = np.arange(group.order) if operators is None else np.array(operators)
    right, variance = (depth == 0).mean(axis=0), np.zeros(n)
    for count in np.unique(roots).tolist():
        steps = [(depth == d) & (roots == count)[:, None] for d in range(1, depth.max() + 1)]
        distribution = np.array([step.mean(axis=0) for step in steps]).reshape(-1, n).T
        known, error = _known(group, used, distribution, n - count, count, rng)
        right, variance = right + known, variance + error**2
    decided = (depth >= 0).mean(axis=0)
    with np.errstate(invalid="ignore"):  # a position without a value in any graph has no accuracy
        return right / decided, np.sqrt(variance) / decided


def _known(
    group: Group,
    used: Integer[np.ndarray, "operators"],
    distribution: Float[np.ndarray, "positions depths"],
    total: int,
    roots: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "positions"], Float[np.ndarray, "positions"]]:
    """Return the probability of a right guess at the depths of each position, with its error.

    `distribution` has the probability of depths 1, 2, ... at each position. The bag holds `total`
    operators and `roots` literals.
    """
    rows, row = np.unique(distribution, axis=0, return_inverse=True)
    bags = math.comb(total + len(used) - 1, total) * math.comb(roots + group.order - 2, roots - 1)
    if bags * group.order * distribution.shape[1] <= MAX_CELLS and (total + 1) ** len(used) < 2**63:
        right = _by_all_bags(group, used, rows, total, roots)
        return right[row], np.zeros(len(row))
    right, error = _by_some_bags(group, used, rows, total, roots, rng)
    return right[row], error[row]


def _by_all_bags(
    group: Group,
    used: Integer[np.ndarray, "operators"],
    distribution: Float[np.ndarray, "rows depths"],
    total: int,
    roots: int,
) -> Float[np.ndarray, "rows"]:
    """Return the sum over bags of the largest joint probability with a value.

    Each literal of the bag is equally likely to be the chain's own. One of them can be fixed to the
    identity, since x -> x . h permutes all values alike.
    """
    products = np.tensordot(
        distribution, _products(group, used, total, distribution.shape[1]), axes=1
    )
    acting = np.argsort(group.table, axis=0)  # by v and x: the g with g . x = v
    right = np.zeros(len(distribution))
    for others in combinations_with_replacement(range(group.order), roots - 1):
        times = [others.count(x) for x in range(group.order)]
        orders = math.factorial(roots - 1) / math.prod(map(math.factorial, times))
        literals = (group.identity, *others)
        values = sum(products[..., acting[:, x]] for x in literals) / roots
        right += orders / group.order ** (roots - 1) * values.max(axis=-1).sum(axis=-1)
    return right


def _products(
    group: Group, used: Integer[np.ndarray, "operators"], total: int, depths: int
) -> Float[np.ndarray, "depths bags order"]:
    """Return the joint probability of a bag of operators and the product of the first 1, 2, ...

    Operators are added one by one, to all bags together. A bag is encoded as the number whose
    digits are its counts.
    """
    digit = (total + 1) ** np.arange(len(used))
    bags = np.zeros(1, dtype=np.int64)
    joint = np.zeros((depths, 1, group.order))
    joint[:, 0, group.identity] = 1
    undone = np.argsort(group.table, axis=1)  # by g and v: the x with g . x = v
    for step in range(total):
        larger = np.unique(bags[:, None] + digit)
        following = np.zeros((depths, len(larger), group.order))
        for g, value in zip(used, digit, strict=True):
            at = np.searchsorted(larger, bags + value)
            following[:step, at] += joint[:step]  # enough operators have acted
            following[step:, at] += joint[step:][..., undone[g]]
        bags, joint = larger, following / len(used)
    return joint


def _by_some_bags(
    group: Group,
    used: Integer[np.ndarray, "operators"],
    distribution: Float[np.ndarray, "rows depths"],
    total: int,
    roots: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
    """Estimate `_by_all_bags` from a sample of bags; return it with the standard error.

    Half of each bag's orderings choose the guess and the others score it, so the score is not
    biased upwards. A guess may then be slightly worse than the best.
    """
    bags = rng.choice(used, size=(SAMPLED_BAGS, total)).astype(np.int16)
    literals = rng.integers(group.order, size=(SAMPLED_BAGS, roots))
    guessed, scored = (
        np.tensordot(
            distribution, _frequencies(group, bags, literals, distribution.shape[1], rng), axes=1
        )
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
    """Return the frequency of each value at each depth over random orders of each bag."""
    bag = np.repeat(np.arange(len(bags)), ORDERINGS)
    ordered = rng.permuted(bags[bag], axis=1)
    value = literals[bag, rng.integers(literals.shape[1], size=len(bag))]
    frequency = np.zeros((depths, len(bags), group.order))
    for depth in range(depths):
        value = group.table[ordered[:, depth], value]
        counts = np.bincount(bag * group.order + value, minlength=frequency[0].size)
        frequency[depth] = counts.reshape(frequency[0].shape) / ORDERINGS
    return frequency


# --- the shortcut -------------------------------------------------------------------------------


def counted(group: Group, batch: Batch) -> Integer[np.ndarray, "sentences"]:
    """Return the first root's value after all of the sentence's operators, in any order.

    On a single path it is the last variable's value, or in its class if the group is not
    commutative (`groups.classes`). On a sentence with two chains, a branch or a cut, a model that
    predicts it has counted instead of following the chain.
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
    """Return the share of predictions that agree with counting: 1 is pure counting.

    Without any counting it is one over the number of classes: a half for signs and for D3.
    """
    of = classes(group)
    return float((of[predicted] == of[shortcut]).mean())
