"""What counting can tell, against all sentences one by one, and against known numbers."""

from collections import Counter, defaultdict
from itertools import product
from math import comb

import numpy as np
import pytest

from scripts.anatomy.lego import counting_baseline, graphs, groups, tasks
from scripts.anatomy.lego.graphs import MISSING, ROOT
from scripts.anatomy.lego.groups import Group

Z2, D3 = groups.built_in("z2"), groups.built_in("d3")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# k = 0, 1, ... of a path: derived from the binomial law, to three decimals
SIGNS = {
    3: [1, 0.750, 1],
    4: [1, 0.750, 0.750, 1],
    5: [1, 0.688, 0.625, 0.688, 1],
    6: [1, 0.688, 0.625, 0.625, 0.688, 1],
    8: [1, 0.656, 0.578, 0.563, 0.563, 0.578, 0.656, 1],
    12: [1, 0.623, 0.547, 0.526, 0.518, 0.516, 0.516, 0.518, 0.526, 0.547, 0.623, 1],
}


@pytest.mark.parametrize("n", SIGNS)
def test_signs_on_a_path(n: int) -> None:
    """For signs on a path the baseline is the published one."""
    found, error = counting_baseline.accuracy(Z2, graphs.path(n)[None], rng=rng())
    np.testing.assert_allclose(found, SIGNS[n], atol=0.0005 + 1e-9)
    assert (error == 0).all()


@pytest.mark.parametrize(
    ("n", "leaf"), [(3, 0.750), (4, 0.634), (6, 0.485), (8, 0.407), (12, 0.351)]
)
def test_leaf_of_the_triangle_group(n: int, leaf: float) -> None:
    """The baseline at the leaf of a D3 chain has its known value."""
    found, _ = counting_baseline.accuracy(D3, graphs.path(n)[None], rng=rng())
    assert found[-1] == pytest.approx(leaf, abs=0.0005)


@pytest.mark.parametrize("n", [2, 7, 12, 26, 60])
def test_ends_of_a_path_in_closed_form(n: int) -> None:
    """Both ends of long paths have the closed-form baseline."""
    found, _ = counting_baseline.accuracy(Z2, graphs.path(n)[None], rng=rng())
    more_frequent = sum(comb(n - 1, c) * max(c, n - 1 - c) for c in range(n)) / 2 ** (n - 1)
    assert found[0] == found[-1] == pytest.approx(1, abs=1e-12)
    assert found[1] == pytest.approx(more_frequent / (n - 1), abs=1e-12)
    np.testing.assert_allclose(found[1:-1], found[-2:0:-1], atol=1e-12)


def by_all_sentences(group: Group, parents: np.ndarray, used: list[int]) -> np.ndarray:
    """The best accuracy at each position by writing out every sentence of every graph."""
    right, seen = np.zeros(parents.shape[1]), np.zeros(parents.shape[1])
    outcomes = [defaultdict(Counter) for _ in right]
    for graph in parents.tolist():
        choices = [range(group.order) if parent == ROOT else used for parent in graph]
        weight = 1 / np.prod([len(choice) for choice in choices])
        for words in product(*choices):
            literals = tuple(sorted(w for w, p in zip(words, graph, strict=True) if p == ROOT))
            acting = tuple(sorted(w for w, p in zip(words, graph, strict=True) if p != ROOT))
            values: list[int | None] = []
            for k, (word, parent) in enumerate(zip(words, graph, strict=True)):
                below = None if parent == MISSING else values[parent] if parent >= 0 else None
                values.append(
                    word if parent == ROOT else None if below is None else group.table[word, below]
                )
                if values[k] is not None:
                    seen[k] += weight
                    key = (literals, acting, word if parent == ROOT else None)
                    outcomes[k][key][values[k]] += weight
    for k, of_bag in enumerate(outcomes):
        right[k] = sum(max(values.values()) for values in of_bag.values())
    return right / np.where(seen > 0, seen, np.nan)


def all_of(graph: graphs.Graph) -> np.ndarray:
    """Every graph that is drawn, once."""
    return np.unique(graphs.draw(graph, 500, rng()), axis=0)


GRAPHS = {
    "path": graphs.path(4)[None],
    "single": graphs.path(1)[None],
    "two": graphs.paths(4, 2)[None],
    "three": graphs.paths(5, 3)[None],
    "roots only": graphs.paths(2, 2)[None],
    "unequal": graphs.chains([4, 1])[None],
    "star": graphs.star(4)[None],
    "tree": graphs.balanced(5)[None],
    "recursive": all_of(graphs.recursive(4)),
    "branch": all_of(graphs.branch(5)),
    "varied": all_of(graphs.varied(4, min_length=1)),
    "severed": all_of(graphs.severed(5)),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", ["z2", "z3", "d3"])
def test_any_graph_and_group_against_all_sentences(name: str, graph: str) -> None:
    """The baseline equals that of an enumeration of all sentences."""
    parents, group = GRAPHS[graph], groups.built_in(name)
    used = [1, 3, 4] if name == "d3" else list(range(group.order))  # without an inverse
    found, error = counting_baseline.accuracy(group, parents, operators=used, rng=rng())
    np.testing.assert_allclose(found, by_all_sentences(group, parents, used), atol=1e-12)
    assert (error[~np.isnan(found)] == 0).all()


@pytest.mark.parametrize("graph", ["path", "two"])
def test_all_operators_of_the_triangle(graph: str) -> None:
    """With all operators of D3 the baseline equals that of an enumeration."""
    found, _ = counting_baseline.accuracy(D3, GRAPHS[graph], rng=rng())
    expected = by_all_sentences(D3, GRAPHS[graph], list(range(6)))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("parents", [graphs.path(7)[None], graphs.paths(7, 2)[None]])
@pytest.mark.parametrize("group", [Z2, D3])
def test_sampled_bags_agree_with_all_bags(
    group: Group, parents: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampled baseline agrees with the exact one within its error."""
    exact, _ = counting_baseline.accuracy(group, parents, rng=rng())
    monkeypatch.setattr(counting_baseline, "MAX_CELLS", 0)
    found, error = counting_baseline.accuracy(group, parents, rng=rng())
    roots = parents[0] == ROOT
    assert (error[roots] == 0).all()
    assert (found[roots] == 1).all()
    assert (np.abs(found - exact) <= 4 * error + 0.005).all()
    assert (error < 0.02).all()


def test_sampling_is_not_biased_upwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few orderings the sampled baseline is not above the exact one."""
    monkeypatch.setattr(counting_baseline, "MAX_CELLS", 0)
    monkeypatch.setattr(counting_baseline, "ORDERINGS", 30)
    found, error = counting_baseline.accuracy(
        groups.built_in("z5"), graphs.path(8)[None], rng=rng()
    )
    monkeypatch.setattr(counting_baseline, "MAX_CELLS", 1e9)
    exact, _ = counting_baseline.accuracy(groups.built_in("z5"), graphs.path(8)[None], rng=rng())
    assert (found <= exact + 4 * error).all()


def test_large_groups_are_sampled() -> None:
    """Groups too large to enumerate have a sampled baseline with an error."""
    found, error = counting_baseline.accuracy(
        groups.built_in("z26"), graphs.path(12)[None], rng=rng()
    )
    assert found[-1] == 1  # the last variable of a commutative group is known by counting
    assert (error[1:-1] > 0).all()
    assert ((found[1:-1] > 1 / 26) & (found[1:-1] < 0.25)).all()


def test_counting_gives_the_leaf_of_a_path() -> None:
    """Counting gives the value, or class, of the last variable of a path."""
    for name in ("z2", "z5", "d3"):
        group = groups.built_in(name)
        layout = tasks.layout(group, tasks.alphabet(26))
        batch = tasks.sample(tasks.Task(group, layout, graphs.path(9), 9), 400, rng())
        shortcut = counting_baseline.counted(group, batch)
        assert counting_baseline.agreement(group, batch.values[:, -1], shortcut) == 1
        if name != "d3":
            assert (shortcut == batch.values[:, -1]).all()


@pytest.mark.parametrize("name", ["z2", "z5", "d3"])
def test_shortcut_tests_separate_counting_from_walking(name: str) -> None:
    """On changed sentences counting agrees with the truth only by chance."""
    group = groups.built_in(name)
    layout = tasks.layout(group, tasks.alphabet(26))
    path = tasks.Task(group, layout, graphs.path(9), 9)
    for changed, leaf in [(tasks.two_chains(path, 4), 3), (tasks.branched(path), 8)]:
        batch = tasks.sample(changed, 20_000, rng())
        shortcut = counting_baseline.counted(group, batch)
        assert counting_baseline.agreement(group, shortcut, shortcut) == 1
        chance = 1 / len(set(groups.classes(group)))
        following = counting_baseline.agreement(group, batch.values[:, leaf], shortcut)
        assert following == pytest.approx(chance, abs=0.015)
