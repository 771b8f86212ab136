"""From the configuration to laws of sentences, and sentences to test on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from scripts.anatomy import seeding
from scripts.anatomy.lego import graphs, groups, settings, task
from scripts.anatomy.lego.task import Batch, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase  # importing transformers takes seconds


def law(
    choice: settings.Task,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    words: Mapping[str, str] | None = None,
) -> Task:
    """The law of training sentences that the configuration describes.

    Args:
        choice: The configuration.
        tokenizer: Whose tokens sentences are written in; by default in tokens of their own.
        words: Other words for some symbols, see `task.of_tokenizer`.

    Raises:
        ValueError: The table is no group, the tokenizer splits a symbol, or something else does
            not fit; one line.
    """
    group = _group(choice.group)
    letters = task.alphabet(choice.letters)
    if tokenizer is None:
        layout = task.layout(group, letters, form=choice.layout)
    else:
        layout = task.of_tokenizer(tokenizer, group, letters, words=words)
    seen, _ = task.split_letters(choice.letters, choice.held_out)
    return Task(
        group=group,
        layout=layout,
        graph=_graph(choice),
        n=choice.n,
        letters=seen,
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


def with_held_out_letters(rules: Task, held_out: int) -> Task:
    """The same law with letters that no training sentence has."""
    _, unseen = task.split_letters(len(rules.layout.letters), held_out)
    return replace(rules, letters=unseen)


def test_sentences(rules: Task, count: int, seed: int, purpose: str = "test") -> Batch:
    """Sentences to test on; the same for every variant of a task."""
    return task.sample(rules, count, seeding.numpy_generator(seed, purpose))
