"""From the configuration to laws of sentences, and sentences to test on."""

from scripts.anatomy import seeding
from scripts.anatomy.lego import graphs, groups, settings, task
from scripts.anatomy.lego.task import Batch, Task


def law(choice: settings.Task) -> Task:
    """The law of sentences that the configuration describes.

    Raises:
        ValueError: The table is no group, or something else does not fit; one line.
    """
    group = _group(choice.group)
    letters = task.alphabet(choice.letters)
    return Task(
        group=group,
        layout=task.layout(group, letters, form=choice.layout),
        graph=_graph(choice),
        n=choice.n,
        operators=None if choice.operators is None else tuple(choice.operators),
        order=None if choice.shuffled else tuple(range(choice.n)),
    )


def _group(choice: str | settings.Table) -> groups.Group:
    if isinstance(choice, str):
        return groups.built_in(choice)
    return groups.group(choice.names, choice.table, operators=choice.operators)


def _graph(choice: settings.Task) -> graphs.Graph:
    n, graph = choice.n, choice.graph
    match graph.kind:
        case "paths":
            return graphs.paths(n, graph.count)
        case "varied":
            return graphs.varied(n, shortest=graph.shortest)
        case kind:
            return getattr(graphs, kind)(n)


def test_sentences(rules: Task, count: int, seed: int, purpose: str = "test") -> Batch:
    """Sentences to test on; the same for every variant of a task."""
    return task.sample(rules, count, seeding.numpy_generator(seed, purpose))
