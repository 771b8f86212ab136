"""Sentences, parsed and evaluated again by a slow reader, and the laws that they are drawn from."""

import itertools
from collections import Counter
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from scripts.anatomy.lego import graphs, groups, tasks
from scripts.anatomy.lego.graphs import MISSING, ROOT
from scripts.anatomy.lego.tasks import Batch, Task

Z2, D3 = groups.built_in("z2"), groups.built_in("d3")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def signs(n: int, *, letters: int = 26, form: tasks.Form = "published", **choices: object) -> Task:
    """The task of signs on one path, but for what is chosen otherwise."""
    layout = tasks.layout(Z2, tasks.alphabet(letters), form=form)
    choices = {"group": Z2, "layout": layout, "graph": graphs.path(n), "n": n} | choices
    if "side" in choices:
        choices["letters"] = choices.pop("side")
    return Task(**choices)


# --- graphs -------------------------------------------------------------------------------------


def test_fixed_graphs() -> None:
    """Fixed graphs have the documented parents."""
    assert graphs.path(4).tolist() == [ROOT, 0, 1, 2]
    assert graphs.paths(6, 2).tolist() == [ROOT, 0, 1, ROOT, 3, 4]
    assert graphs.paths(5, 3).tolist() == [ROOT, 0, ROOT, 2, ROOT]
    assert graphs.chains([1, 3]).tolist() == [ROOT, ROOT, 1, 2]
    assert graphs.star(4).tolist() == [ROOT, 0, 0, 0]
    assert graphs.balanced(7).tolist() == [ROOT, 0, 0, 1, 1, 2, 2]


def test_random_graphs_are_uniform() -> None:
    """Random graphs are uniform over the documented set."""
    for graph, expected in [
        (graphs.recursive(4), {(ROOT, 0, b, c) for b in range(2) for c in range(3)}),
        (graphs.branch(5), {(ROOT, 0, 1, 2, c) for c in range(3)}),
        (graphs.severed(5), {(ROOT, 0, MISSING, 2, 3), (ROOT, 0, 1, MISSING, 3)}),
        (graphs.varied(4, min_length=2), {(ROOT, 0, ROOT, 2), (ROOT, 0, 1, ROOT), (ROOT, 0, 1, 2)}),
    ]:
        found = Counter(map(tuple, graphs.draw(graph, 6000, rng()).tolist()))
        assert set(found) == expected
        share = 1 / len(expected)
        deviation = np.sqrt(6000 * share * (1 - share))
        assert all(abs(count - 6000 * share) < 4 * deviation for count in found.values())


def test_depths() -> None:
    """Depths count the steps to the root; clauses that depend on a missing one have none."""
    parents = np.array([[ROOT, 0, 0, 2, ROOT, 4], [ROOT, 0, MISSING, 2, 3, 1]])
    assert graphs.depths(parents).tolist() == [[0, 1, 1, 2, 0, 1], [0, 1, -1, -1, -1, 2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graphs.paths(3, 4), "got 4"),
        (lambda: graphs.chains([3, 0]), "got 0"),
        (lambda: graphs.branch(2), "got 2"),
        (lambda: graphs.severed(3), "got 3"),
        (lambda: graphs.varied(3, min_length=4), "min_length.*got 4"),
    ],
)
def test_graphs_that_are_refused(make: object, message: str) -> None:
    """Graphs that need more clauses are refused with the number given."""
    with pytest.raises(ValueError, match=message):
        make()


# --- answers ------------------------------------------------------------------------------------


def read(used: Task, symbols: list[str]) -> dict[str, tuple[str, str, int]]:
    """Variable -> operator, operand and place: the sentence as a reader takes it apart."""
    assert (symbols[0], symbols[-1]) == ("[CLS]", "[SEP]")
    stride = used.layout.tokens_per_clause
    clauses = {}
    for index in range(1, len(symbols) - 1, stride):
        clause = symbols[index : index + stride]
        if used.layout.form == "published":
            variable, equals, operator, operand, comma = clause
            assert (equals, comma) == ("=", ",")
        else:
            variable, operator, operand = clause
        assert variable in used.layout.letters
        assert operator in used.layout.operators
        assert variable not in clauses
        clauses[variable] = operator, operand, index
    return clauses


def value(used: Task, clauses: dict[str, tuple[str, str, int]], variable: str) -> int:
    """The value of a variable, by following the chain; -1 for one that is nowhere defined."""
    if variable not in clauses:
        return -1
    operator, operand, _ = clauses[variable]
    if operand in used.group.names:
        assert operator == used.group.operators[used.group.identity]
        below = used.group.names.index(operand)
    else:
        below = value(used, clauses, operand)
    return -1 if below < 0 else used.group.table[used.group.operators.index(operator), below]


@st.composite
def any_tasks(draw: st.DrawFn) -> Task:
    group = groups.built_in(draw(st.sampled_from(["z2", "z5", "d3", "s3", "klein"])))
    n = draw(st.integers(4, 9))
    size = n + draw(st.integers(1, 25))
    form = draw(st.sampled_from(["published", "compact"]))
    chosen = draw(st.sets(st.integers(0, group.order - 1), min_size=1))
    used = Task(
        group,
        tasks.layout(group, tasks.alphabet(size), form=form),
        draw(st.sampled_from([
            graphs.path(n), graphs.paths(n, 2), graphs.paths(n, 3), graphs.star(n),
            graphs.balanced(n), graphs.recursive(n), graphs.varied(n, min_length=2),
        ])),
        n,
        letters=tuple(draw(st.permutations(range(size)))[: n + 1]),
        operators=draw(st.sampled_from([None, tuple(chosen)])),
        order=draw(st.sampled_from([None, tuple(range(n)), tuple(reversed(range(n)))])),
    )  # fmt: skip
    changes = [lambda t: t, lambda t: tasks.two_chains(t, n // 2), tasks.branched, tasks.severed]
    return draw(st.sampled_from(changes))(used)


@given(any_tasks(), st.integers(0, 2**32))
@hypothesis_settings(max_examples=150)
def test_answers_by_following_the_chain(used: Task, seed: int) -> None:
    """Values, parents and operators agree with an independent reading of the sentence."""
    batch = tasks.sample(used, 3, rng(seed))
    assert batch.tokens.shape == (3, used.layout.length(used.n))
    for row in range(len(batch)):
        symbols = tasks.text(used.layout, batch.tokens[row])
        clauses = read(used, symbols)
        assert len(clauses) == used.n
        defined = [symbols[index] for index in batch.indices[row]]  # in chain order
        assert set(defined) == set(clauses)
        assert set(defined) <= {used.layout.letters[letter] for letter in used.letters_used}
        for k, variable in enumerate(defined):
            operator, operand, index = clauses[variable]
            assert index == batch.indices[row, k]
            assert value(used, clauses, variable) == batch.values[row, k]
            acting, parent = batch.operators[row, k], batch.parents[row, k]
            assert operator == used.group.operators[acting]
            assert acting in used.operators_used or parent == ROOT
            if parent >= 0:
                assert operand == defined[parent]
            elif parent == MISSING:
                assert operand in set(used.layout.letters) - set(defined)
            else:
                assert operand in used.group.names
        if used.order is not None:
            stride = used.layout.tokens_per_clause
            assert ((batch.indices[row] - 1) // stride).tolist() == list(used.order)


def test_severed_chains_are_open_from_the_cut_on() -> None:
    """Values of a cut chain are unknown from the cut on."""
    batch = tasks.sample(tasks.severed(signs(6)), 500, rng())
    cut = (batch.parents == MISSING).argmax(axis=1)
    assert set(cut.tolist()) == {2, 3, 4}
    assert ((batch.values == -1) == (np.arange(6) >= cut[:, None])).all()


@pytest.mark.parametrize("n", [2, 3, 8, 12, 26])
def test_published_positions(n: int) -> None:
    """Variables of published sentences are at 1, 6, 11, ..."""
    used = signs(n)
    batch = tasks.sample(used, 20, rng())
    assert batch.tokens.shape[1] == 5 * n + 2
    assert np.sort(batch.indices, axis=1).tolist() == [list(range(1, 5 * n - 3, 5))] * 20
    letters = set(used.layout.ids(used.layout.letters).tolist())
    assert set(np.take_along_axis(batch.tokens, batch.indices, axis=1).ravel().tolist()) <= letters


def test_sentences_of_both_layouts() -> None:
    """Both layouts are written as documented."""
    order = (2, 0, 1)
    for form, expected in [
        ("published", "[CLS] {b} = {g} {a} , {c} = {h} {b} , {a} = val {x} , [SEP]"),
        ("compact", "[CLS] {b} {g} {a} {c} {h} {b} {a} val {x} [SEP]"),
    ]:
        used = signs(3, form=form, order=order)
        batch = tasks.sample(used, 1, rng(3))
        symbols = tasks.text(used.layout, batch.tokens[0])
        a, b, c = (symbols[index] for index in batch.indices[0])
        g, h = (Z2.operators[k] for k in batch.operators[0, 1:])
        x = Z2.names[batch.values[0, 0]]
        assert " ".join(symbols) == expected.format(a=a, b=b, c=c, g=g, h=h, x=x)


# --- laws ---------------------------------------------------------------------------------------


def assert_law(counts: dict, law: dict, sigmas: float = 4.5) -> None:
    """Every count within some standard deviations of its expectation, and nothing besides."""
    total = sum(counts.values())
    assert set(counts) <= set(law)
    for key, share in law.items():
        assert abs(counts.get(key, 0) - total * share) < sigmas * np.sqrt(
            total * share * (1 - share)
        )


def test_flips_are_binomial() -> None:
    """The number of flips is binomial, and the root never flips."""
    batch = tasks.sample(signs(8), 20_000, rng())
    flips = Counter((batch.operators == 1).sum(axis=1).tolist())
    assert_law(flips, {k: comb(7, k) / 2**7 for k in range(8)})
    assert (batch.operators[:, 0] == 0).all()  # the root never flips


def test_values_and_operators_are_uniform() -> None:
    """Values and operators are uniform at every position."""
    used = Task(D3, tasks.layout(D3, tasks.alphabet(9)), graphs.path(4), 4)
    batch = tasks.sample(used, 20_000, rng())
    uniform = {k: 1 / 6 for k in range(6)}
    for k in range(4):
        assert_law(Counter(batch.values[:, k].tolist()), uniform)
    for k in range(1, 4):
        assert_law(Counter(batch.operators[:, k].tolist()), uniform)


def test_orders_and_letters_are_uniform() -> None:
    """Orders of clauses and letters of variables are uniform."""
    used = signs(4, letters=5)
    batch = tasks.sample(used, 24_000, rng())
    slots = Counter(map(tuple, ((batch.indices - 1) // 5).tolist()))
    assert_law(slots, {order: 1 / 24 for order in itertools.permutations(range(4))})
    variables = np.take_along_axis(batch.tokens, batch.indices, axis=1)
    ids = used.layout.ids(used.layout.letters).tolist()
    assert_law(
        Counter(map(tuple, variables.tolist())),
        {letters: 1 / 120 for letters in itertools.permutations(ids, 4)},
    )


def test_unused_letters_of_cut_chains_are_uniform() -> None:
    """The letter of a missing clause is uniform."""
    batch = tasks.sample(tasks.severed(signs(4, letters=7)), 21_000, rng())
    at_cut = np.take_along_axis(batch.tokens, batch.indices[:, 2:3] + 3, axis=1)
    ids = signs(4, letters=7).layout.ids(tasks.alphabet(7)).tolist()
    assert_law(Counter(at_cut.ravel().tolist()), {letter: 1 / 7 for letter in ids})


@pytest.mark.parametrize(("n", "letters", "expected"), [(2, 3, 48), (3, 4, 24 * 6 * 8)])
def test_number_of_distinct_sentences(n: int, letters: int, expected: int) -> None:
    """All P(letters, n) n! 2^n sentences occur."""
    batch = tasks.sample(signs(n, letters=letters), 20_000, rng())
    assert len({row.tobytes() for row in batch.tokens}) == expected


@pytest.mark.parametrize(("n", "sentences"), [(2, 5_200), (3, 748_800)])
def test_overlap_of_training_and_test_set(n: int, sentences: int) -> None:
    """Deduplication removes the expected overlap: 98 % for two clauses."""
    train = tasks.sample(signs(n), 10_000 * n, rng(0))
    test = tasks.sample(signs(n), 10_000, rng(1))
    new = tasks.deduplicated(train, test)
    expected = 1 - np.exp(-10_000 * n / sentences)
    assert expected == pytest.approx({2: 0.98, 3: 0.039}[n], abs=0.003)
    assert 1 - len(new) / len(test) == pytest.approx(expected, abs=0.008)
    seen = set(map(tuple, train.tokens.tolist()))
    assert not seen & set(map(tuple, new.tokens.tolist()))
    kept = [tuple(row) not in seen for row in test.tokens.tolist()]
    for name in ("tokens", "values", "indices", "parents", "operators"):
        assert (getattr(new, name) == getattr(test, name)[kept]).all()


def test_nothing_left_to_test_on() -> None:
    """A test set inside the training set is refused."""
    train = tasks.sample(signs(2, letters=2), 2_000, rng(0))
    with pytest.raises(ValueError, match="all test sentences are in the training set"):
        tasks.deduplicated(train, tasks.sample(signs(2, letters=2), 50, rng(1)))


def test_held_out_letters() -> None:
    """Training and test letters are disjoint and together the alphabet."""
    train, test = tasks.split_letters(26, 12)
    assert (len(train), len(test)) == (14, 12)
    seen, unseen = (
        {
            symbol
            for row in tasks.sample(signs(12, letters=26, side=side), 200, rng()).tokens
            for symbol in row
        }
        for side in (train, test)
    )
    layout = signs(12).layout
    letters = set(layout.ids(layout.letters).tolist())
    assert not seen & unseen & letters
    assert (seen | unseen) & letters == letters
    assert tasks.split_letters(5, 0) == (tuple(range(5)), tuple(range(5)))
    with pytest.raises(ValueError, match="held_out.*got 5"):
        tasks.split_letters(5, 5)


def test_draws_follow_the_generator() -> None:
    """Equal seeds give equal sentences; other seeds other ones."""
    used = signs(5)
    one, same, other = (tasks.sample(used, 50, rng(seed)) for seed in (0, 0, 1))
    for name in ("tokens", "values", "indices", "parents", "operators"):
        assert (getattr(one, name) == getattr(same, name)).all()
        assert getattr(one, name).dtype == np.int64
    assert (one.tokens != other.tokens).any()


def test_sentences_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks neither lose nor repeat sentences."""
    monkeypatch.setattr(tasks, "SENTENCES_PER_CHUNK", 7)
    batch = tasks.sample(signs(12), 24, rng())
    assert len(batch) == 24
    assert len({row.tobytes() for row in batch.tokens}) == 24


# --- alphabets, settings, tokenizers ------------------------------------------------------------


def test_alphabets() -> None:
    """Alphabets have unique names, pairs of letters from 27 on."""
    assert tasks.alphabet(26) == tuple("abcdefghijklmnopqrstuvwxyz")
    assert tasks.alphabet(29)[26:] == ("aa", "ab", "ac")
    assert len(set(tasks.alphabet(702))) == 702
    layout = tasks.layout(Z2, tasks.alphabet(40))
    used = Task(Z2, layout, graphs.path(40), 40)
    assert tasks.sample(used, 2, rng()).tokens.shape == (2, 202)  # a pair is one token
    for size in (0, 703):
        with pytest.raises(ValueError, match=f"1 to 702 letters, got {size}"):
            tasks.alphabet(size)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"letters": 11}, "letters.*got 11"),
        ({"side": tuple(range(5))}, "letters.*got 5"),
        ({"order": (0, 1, 1)}, r"order.*got \(0, 1, 1\)"),
        ({"operators": (0, 2)}, r"operators.*got \(0, 2\)"),
        ({"operators": ()}, r"operators.*got \(\)"),
        ({"side": (0,) * 12}, "letters.*got 1"),
        ({"group": D3}, "layout"),
        ({"graph": graphs.path(5)}, "graph.*got 5"),
        ({"graph": graphs.recursive(5)}, "graph.*got 5"),
    ],
)
def test_settings_that_are_refused(choices: dict, message: str) -> None:
    """Contradictory attributes of a task are refused with the value given."""
    with pytest.raises(ValueError, match=message):
        signs(12, **choices)


def test_severed_needs_one_more_letter() -> None:
    """A cut chain needs one more letter than clauses."""
    with pytest.raises(ValueError, match="13 letters.*got 12"):
        tasks.sample(tasks.severed(signs(12, letters=12)), 5, rng())


def test_symbols_with_two_meanings() -> None:
    """An element with the name of a letter is refused."""
    group = groups.group(("e", "f"), [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="'e'"):
        tasks.layout(group, tasks.alphabet(6))
    assert tasks.layout(group, tasks.alphabet(4)).d_vocab == 2 + 2 + 4 + 4
    assert tasks.layout(group, tasks.alphabet(4), form="compact").d_vocab == 2 + 4 + 4


def bert(*words: str) -> BertTokenizerFast:
    """A WordPiece tokenizer with these words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return BertTokenizerFast(vocab={word: k for k, word in enumerate([*special, *words])})


WORDS = ("z", "not", "=", "val", "a", "1", "b", ",", "0", "c", "d", "r", "##0", "keep", "##t")


def test_tokens_of_a_tokenizer() -> None:
    """Sentences have the ids of the tokenizer for their text."""
    tokenizer = bert(*WORDS)
    layout = tasks.of_tokenizer(tokenizer, Z2, tuple("abcd"))
    assert layout.d_vocab == len(tokenizer)
    batch = tasks.sample(Task(Z2, layout, graphs.path(3), 3), 20, rng())
    for row in batch.tokens:
        sentence = " ".join(tasks.text(layout, row)[1:-1])
        assert tokenizer(sentence)["input_ids"] == row.tolist()


def test_other_words_for_symbols() -> None:
    """`words` replaces symbols; unknown symbols and equal words are refused."""
    tokenizer = bert(*WORDS)
    layout = tasks.of_tokenizer(tokenizer, Z2, tuple("abcd"), words={"not": "z", "val": "keep"})
    assert layout.vocabulary["not"] == tokenizer.convert_tokens_to_ids("z")
    assert layout.vocabulary["val"] == tokenizer.convert_tokens_to_ids("keep")
    with pytest.raises(ValueError, match="words: 'yes'"):
        tasks.of_tokenizer(tokenizer, Z2, tuple("abcd"), words={"yes": "z"})
    with pytest.raises(ValueError, match="same token for 'a' and 'a'"):
        tasks.of_tokenizer(tokenizer, Z2, tuple("abcd"), words={"not": "a"})


def test_tokenizers_that_break_the_stride() -> None:
    """Tokenizers that split, lack or merge symbols are refused with the symbol."""
    with pytest.raises(ValueError, match="the tokenizer splits 'r0' into r ##0"):
        turns = groups.group(("1", "r0"), [[0, 1], [1, 0]], operators=("val", "not"))
        tasks.of_tokenizer(bert(*WORDS), turns, tuple("ab"))
    with pytest.raises(ValueError, match="the tokenizer does not know 'e'"):
        tasks.of_tokenizer(bert(*WORDS), Z2, tuple("abcde"))
    with pytest.raises(ValueError, match="same token for 'A' and 'a'"):
        tasks.of_tokenizer(bert(*WORDS), Z2, ("A", "a"))


def whitespace(words: tuple[str, ...], **special: str) -> PreTrainedTokenizerFast:
    """A tokenizer that frames sentences with nothing."""
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def test_tokenizers_without_ends() -> None:
    """Tokenizers that do not frame sentences are refused."""
    words = ("[UNK]", "<s>", "</s>", *WORDS)
    with pytest.raises(ValueError, match="no tokens for the start and the end"):
        tasks.of_tokenizer(whitespace(words), Z2, tuple("abc"))
    unframed = whitespace(words, cls_token="<s>", sep_token="</s>", unk_token="[UNK]")
    with pytest.raises(ValueError, match="3 clauses.*15"):
        tasks.of_tokenizer(unframed, Z2, tuple("abc"))


def test_rows_of_a_batch() -> None:
    """Indexing a batch selects the same rows of all arrays."""
    batch = tasks.sample(signs(4), 10, rng())
    rows = np.array([7, 2])
    picked = batch[rows]
    assert isinstance(picked, Batch)
    assert (picked.tokens == batch.tokens[rows]).all()
    assert (picked.values == batch.values[rows]).all()
    assert len(batch[3:5]) == 2
