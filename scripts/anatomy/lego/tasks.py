"""The LEGO task: sentences of clauses that bind variables to group elements, and their answers.

A clause binds a variable to an operator on a literal or on another variable. A sentence has n
clauses in random order (Zhang et al. 2022, "Unveiling Transformers with LEGO", section 2). The
answer is the value of every variable. Clauses are numbered in chain order, roots before the clauses
that use them; the position of a clause in the sentence is its slot.
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Int64, Integer, Shaped

from scripts.anatomy import seeding
from scripts.anatomy.lego import graphs, groups
from scripts.anatomy.lego.graphs import MISSING, ROOT, Graph
from scripts.anatomy.lego.groups import Group
from scripts.anatomy.lego.settings import GroupSettings, TaskSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase  # importing transformers takes seconds

START, END, EQUALS, COMMA = "[CLS]", "[SEP]", "=", ","
CLAUSES = {  # the parts of a clause; a symbol appears as it is
    "published": ("variable", EQUALS, "operator", "operand", COMMA),
    "compact": ("variable", "operator", "operand"),
}
SENTENCES_PER_CHUNK = 10_000  # a chunk fits the processor's cache

Form = Literal["published", "compact"]


# --- how a sentence is written ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layout:
    """How sentences are written: `START`, clauses of equal length, `END`.

    Attributes:
        form: A clause is `variable = operator operand ,` ("published", five tokens) or
            `variable operator operand` ("compact", three).
        letters: The alphabet of variables.
        operators: The names of the group's elements as operators.
        literals: Their names as values.
        vocabulary: The token id of every symbol.
        d_vocab: Size of the vocabulary of the ids.
    """

    form: Form
    letters: tuple[str, ...]
    operators: tuple[str, ...]
    literals: tuple[str, ...]
    vocabulary: Mapping[str, int]
    d_vocab: int

    @property
    def tokens_per_clause(self) -> int:
        """Return the distance between the variables of neighbouring clauses, in tokens."""
        return len(CLAUSES[self.form])

    def length(self, n: int) -> int:
        """Return the number of tokens in a sentence of n clauses."""
        return n * self.tokens_per_clause + 2

    def ids(self, symbols: Sequence[str]) -> Integer[np.ndarray, "symbols"]:
        """Return the token ids of symbols, in the smallest signed type that holds all ids."""
        dtype = np.min_scalar_type(-self.d_vocab)
        return np.array([self.vocabulary[symbol] for symbol in symbols], dtype=dtype)


def alphabet(size: int) -> tuple[str, ...]:
    """Return names of variables: a to z, then pairs of letters, which are one token each."""
    letters = string.ascii_lowercase
    names = [*letters, *map("".join, product(letters, repeat=2))]
    if not 1 <= size <= len(names):
        raise ValueError(f"expected 1 to {len(names)} letters, got {size}")
    return tuple(names[:size])


def layout(group: Group, letters: Sequence[str], *, form: Form = "published") -> Layout:
    """Return a layout with its own token ids, counted from 0.

    Raises ValueError if an element of the group has the name of another symbol.
    """
    symbols = _symbols(group, letters, form)
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    return Layout(form, tuple(letters), group.operators, group.names, vocabulary, len(vocabulary))


def _symbols(group: Group, letters: Sequence[str], form: Form) -> list[str]:
    """Return all symbols of sentences; raise ValueError if one has two meanings."""
    marks = [word for word in CLAUSES[form] if word in (EQUALS, COMMA)]
    symbols = [START, END, *marks, *letters, *group.operators, *group.names]
    twice = sorted({symbol for symbol in symbols if symbols.count(symbol) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} has two meanings: rename an element or a letter")
    return symbols


def of_tokenizer(
    tokenizer: "PreTrainedTokenizerBase",
    group: Group,
    letters: Sequence[str],
    *,
    words: Mapping[str, str] | None = None,
) -> Layout:
    """Return the published layout in the token ids of a pretrained model's tokenizer.

    Every symbol must be one token, alone and within a sentence; otherwise the variables are at
    wrong positions without any error. `words` gives other words for some symbols: for those that
    the tokenizer splits, or to hide the meaning of `not` from the model.

    Raises:
        ValueError: The tokenizer splits or does not know a symbol (named), two symbols are the same
            token, or sentences do not start and end with one special token each.
    """
    words = dict(words or {})
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise ValueError("the tokenizer has no tokens for the start and the end of a sentence")
    symbols = _symbols(group, letters, "published")[2:]
    for symbol in words.keys() - set(symbols):
        raise ValueError(f"words: {symbol!r} is not a symbol of the sentences")
    written = {symbol: words.get(symbol, symbol) for symbol in symbols}
    vocabulary = {symbol: _one_token(tokenizer, word) for symbol, word in written.items()}
    vocabulary |= {START: tokenizer.cls_token_id, END: tokenizer.sep_token_id}
    _check_all_differ(vocabulary, written)
    published = Layout(
        "published", tuple(letters), group.operators, group.names, vocabulary, len(tokenizer)
    )
    _check_stride(tokenizer, published, written)
    return published


def _one_token(tokenizer: "PreTrainedTokenizerBase", word: str) -> int:
    """Return the token of a word; raise ValueError with the word if it is not exactly one."""
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        pieces = " ".join(tokenizer.convert_ids_to_tokens(ids))
        raise ValueError(f"the tokenizer splits {word!r} into {pieces}: give it another word")
    if ids[0] == tokenizer.unk_token_id:
        raise ValueError(f"the tokenizer does not know {word!r}: give it another word")
    return ids[0]


def _check_all_differ(vocabulary: Mapping[str, int], written: Mapping[str, str]) -> None:
    seen: dict[int, str] = {}
    for symbol, token in vocabulary.items():
        if token in seen:
            both = " and ".join(repr(written.get(s, s)) for s in (seen[token], symbol))
            raise ValueError(f"the tokenizer has the same token for {both}")
        seen[token] = symbol


def _check_stride(
    tokenizer: "PreTrainedTokenizerBase", layout: Layout, written: Mapping[str, str]
) -> None:
    """Raise ValueError unless the tokenizer writes each symbol as its token within a sentence."""
    n = max(map(len, (layout.letters, layout.operators, layout.literals)))
    variables, operators, literals = (
        np.resize(np.array(symbols, dtype=object), n)
        for symbols in (layout.letters, layout.operators, layout.literals)
    )
    clauses = zip(variables, operators, literals, strict=True)
    symbols = [s for a, g, x in clauses for s in (a, EQUALS, g, x, COMMA)]
    ids = tokenizer(" ".join(written[symbol] for symbol in symbols))["input_ids"]
    expected = layout.ids([START, *symbols, END]).tolist()
    if len(ids) != len(expected):
        raise ValueError(f"expected 5 n + 2 tokens for {n} clauses, the tokenizer has {len(ids)}")
    for symbol, actual, wanted in zip([START, *symbols, END], ids, expected, strict=True):
        if actual != wanted:
            token = tokenizer.convert_ids_to_tokens(actual)
            raise ValueError(f"within a sentence the tokenizer turns {symbol!r} into {token!r}")


def text(layout: Layout, tokens: Integer[np.ndarray, "length"]) -> list[str]:
    """Return the symbols of one sentence."""
    symbols = {token: symbol for symbol, token in layout.vocabulary.items()}
    return [symbols[token] for token in tokens.tolist()]


# --- sentences ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """A distribution of sentences: group, graph, letters, operators, and layout.

    Attributes:
        group: Group of the values and operators.
        layout: How sentences are written.
        graph: The clause that each clause uses, fixed or drawn for each sentence.
        n: Number of clauses.
        letters: Numbers of the letters in use (None: the whole alphabet).
        operators: Numbers of the operators in use, all equally likely (None: all). A root is
            always written with the identity, as published.
        order: The slot of each clause (None: shuffled in each sentence).

    Raises:
        ValueError: There are fewer letters than clauses, or two attributes contradict each other.
    """

    group: Group
    layout: Layout
    graph: Graph
    n: int
    letters: tuple[int, ...] | None = None
    operators: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        written = self.layout.operators, self.layout.literals
        if written != (self.group.operators, self.group.names):
            raise ValueError("the layout belongs to another group")
        clauses = graphs.draw(self.graph, 1, np.random.default_rng(0)).shape[1]
        if clauses != self.n:
            raise ValueError(f"expected a graph of {self.n} clauses, got {clauses}")
        letters = len(set(self.letters_used))
        if letters < self.n:
            raise ValueError(f"expected at least {self.n} letters, one per clause, got {letters}")
        if self.order is not None and sorted(self.order) != list(range(self.n)):
            raise ValueError(
                f"order: expected a permutation of 0 to {self.n - 1}, got {self.order}"
            )
        if not set() < set(self.operators_used) <= set(range(self.group.order)):
            raise ValueError(
                f"operators: expected some of 0 to {self.group.order - 1}, got {self.operators}"
            )

    @classmethod
    def from_settings(
        cls,
        settings: TaskSettings,
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        words: Mapping[str, str] | None = None,
    ) -> "Task":
        """Return the task that the configuration describes, with its training letters.

        Args:
            settings: The configuration.
            tokenizer: Sentences are written in its tokens; by default in tokens of their own.
            words: Other words for some symbols, see `of_tokenizer`.

        Raises:
            ValueError: The table is no group, the tokenizer splits a symbol, or the graph does not
                fit the number of clauses; one line.
        """
        group = _group(settings.group)
        letters = alphabet(settings.letters)
        if tokenizer is None:
            written = layout(group, letters, form=settings.layout)
        else:
            written = of_tokenizer(tokenizer, group, letters, words=words)
        seen, _ = split_letters(settings.letters, settings.held_out)
        return cls(
            group=group,
            layout=written,
            graph=_graph(settings),
            n=settings.n,
            letters=seen,
            operators=None if settings.operators is None else tuple(settings.operators),
            order=None if settings.shuffled else tuple(range(settings.n)),
        )

    @property
    def letters_used(self) -> tuple[int, ...]:
        """Return the numbers of the letters in use."""
        return tuple(range(len(self.layout.letters))) if self.letters is None else self.letters

    @property
    def operators_used(self) -> tuple[int, ...]:
        """Return the numbers of the operators in use."""
        return tuple(range(self.group.order)) if self.operators is None else self.operators


def _group(settings: str | GroupSettings) -> Group:
    if isinstance(settings, str):
        return groups.built_in(settings)
    return groups.group(settings.names, settings.table, operators=settings.operators)


def _graph(settings: TaskSettings) -> Graph:
    n, graph = settings.n, settings.graph
    match graph.kind:
        case "paths":
            return graphs.paths(n, graph.count)
        case "varied":
            return graphs.varied(n, min_length=graph.min_length)
        case kind:
            return getattr(graphs, kind)(n)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences with their answers; everything but the tokens is in chain order.

    Attributes:
        tokens: Token ids, special ones included.
        values: The value of each clause's variable; -1 where it depends on a missing clause.
        indices: Index in the sentence of each clause's variable: 1, 6, 11, ... as published.
        parents: The clause that each clause uses (`graphs`).
        operators: The operator of each clause; the identity at roots.
    """

    tokens: Int64[np.ndarray, "sentences length"]
    values: Int64[np.ndarray, "sentences n"]
    indices: Int64[np.ndarray, "sentences n"]
    parents: Int64[np.ndarray, "sentences n"]
    operators: Int64[np.ndarray, "sentences n"]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Shaped[np.ndarray, "rows"]) -> "Batch":
        return Batch(*(getattr(self, field.name)[rows] for field in fields(self)))


def sample(task: Task, count: int, rng: np.random.Generator) -> Batch:
    """Draw sentences; a million of twelve clauses take a few seconds.

    Literals and operators are independent and uniform, letters a random selection. Raises
    ValueError if no letter is left to name a missing clause.
    """
    parts = [
        _sentences(task, min(SENTENCES_PER_CHUNK, count - first), rng)
        for first in range(0, count, SENTENCES_PER_CHUNK)
    ]
    return Batch(*(np.concatenate(part, dtype=np.int64) for part in zip(*parts, strict=True)))


def seeded_sample(task: Task, count: int, seed: int, purpose: str = "test") -> Batch:
    """Draw sentences for a purpose; they are the same for every variant of a task."""
    return sample(task, count, seeding.numpy_generator(seed, purpose))


def _sentences(
    task: Task, count: int, rng: np.random.Generator
) -> tuple[Integer[np.ndarray, "sentences _"], ...]:
    """Return the fields of a batch, in 16 bits where they fit, since these are drawn fastest."""
    parents = graphs.draw(task.graph, count, rng).astype(np.int16)
    operators = _operators(task, parents, rng)
    literals = rng.integers(task.group.order, size=parents.shape, dtype=np.int16)
    table = task.group.table.astype(np.int16)
    values = graphs.walk(parents, literals, lambda k, x: table[operators[:, k], x])
    variables, used = _variables(task, parents, rng)
    ids = {name: task.layout.ids(getattr(task.layout, name)) for name in ("operators", "literals")}
    written = {
        "variable": variables,
        "operator": ids["operators"][operators],
        "operand": np.where(parents == ROOT, ids["literals"][literals], used),
    }
    indices = 1 + task.layout.tokens_per_clause * _slots(task, count, rng)
    return _write(task.layout, written, indices), values, indices, parents, operators


def _operators(
    task: Task, parents: Integer[np.ndarray, "sentences n"], rng: np.random.Generator
) -> Integer[np.ndarray, "sentences n"]:
    """Return random operators of those in use, and the identity at roots."""
    used = np.array(task.operators_used, dtype=np.int16)
    drawn = used[rng.integers(len(used), size=parents.shape, dtype=np.int16)]
    return np.where(parents == ROOT, np.int16(task.group.identity), drawn)


def _variables(
    task: Task, parents: Integer[np.ndarray, "sentences n"], rng: np.random.Generator
) -> tuple[Integer[np.ndarray, "sentences n"], Integer[np.ndarray, "sentences n"]]:
    """Return the tokens of the variable that each clause defines and of the one that it uses.

    A missing clause is named by a letter that no clause defines. (At a root the second is unused.)
    """
    missing = parents == MISSING
    letters = task.layout.ids(task.layout.letters)[sorted(set(task.letters_used))]
    if missing.any() and len(letters) == task.n:
        raise ValueError(f"expected {task.n + 1} letters for a missing clause, got {len(letters)}")
    shuffled = rng.permuted(np.tile(letters, (len(parents), 1)), axis=1)
    used = np.take_along_axis(shuffled, np.where(missing, task.n, parents), axis=1)
    return shuffled[:, : task.n], used


def _slots(task: Task, count: int, rng: np.random.Generator) -> Integer[np.ndarray, "sentences n"]:
    """Return the slot of each clause."""
    if task.order is not None:
        return np.tile(np.array(task.order, dtype=np.int16), (count, 1))
    return rng.permuted(np.tile(np.arange(task.n, dtype=np.int16), (count, 1)), axis=1)


def _write(
    layout: Layout,
    written: Mapping[str, Integer[np.ndarray, "sentences n"]],
    indices: Integer[np.ndarray, "sentences n"],
) -> Integer[np.ndarray, "sentences length"]:
    """Return sentences: the clauses' tokens from `indices` on, and the symbols all share."""
    shape = len(indices), layout.length(indices.shape[1])
    tokens = np.empty(shape, dtype=written["variable"].dtype)
    tokens[:, 0], tokens[:, -1] = layout.ids([START, END])
    for offset, word in enumerate(CLAUSES[layout.form]):
        if word in written:
            np.put_along_axis(tokens, indices + offset, written[word], axis=1)
        else:
            tokens[:, 1 + offset : -1 : layout.tokens_per_clause] = layout.vocabulary[word]
    return tokens


def deduplicated(train: Batch, test: Batch) -> Batch:
    """Return the test sentences that are not in the training set; raise ValueError if none is left.

    Short chains have so few sentences that the sets overlap: with 26 letters 98 % of the test
    sentences of two clauses are among 20,000 others, 4 % of those of three among 30,000, and none
    in practice from five on.
    """
    seen = {row.tobytes() for row in train.tokens}
    new = np.array([row.tobytes() not in seen for row in test.tokens])
    if not new.any():
        raise ValueError("all test sentences are in the training set: use longer chains")
    return test[new]


def split_letters(count: int, held_out: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the letters for training and for testing; the last `held_out` are for testing only.

    With none held out both have all letters.
    """
    if not 0 <= held_out < count:
        raise ValueError(f"held_out: expected 0 to {count - 1} letters, got {held_out}")
    letters = tuple(range(count))
    return letters[: count - held_out], letters[count - held_out :] if held_out else letters


# --- sentences that expose a shortcut -----------------------------------------------------------


def with_held_out_letters(task: Task, held_out: int) -> Task:
    """Return the task with the letters that no training sentence has."""
    _, unseen = split_letters(len(task.layout.letters), held_out)
    return replace(task, letters=unseen)


def two_chains(task: Task, first: int) -> Task:
    """Return the task with a chain of `first` clauses and a second chain of the others."""
    return replace(task, graph=graphs.chains([first, task.n - first]))


def branched(task: Task) -> Task:
    """Return the task with the last clause moved to an earlier variable."""
    return replace(task, graph=graphs.branch(task.n))


def severed(task: Task) -> Task:
    """Return the task with a middle clause that uses a letter without a value."""
    return replace(task, graph=graphs.severed(task.n))
