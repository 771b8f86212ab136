"""Selection and replacement of words, positions that can be attended to, and batches."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scripts.anatomy.topic import experiment
from scripts.anatomy.topic.corpora import END, FIRST_WORD, MASK, PAD, START, Corpus
from scripts.anatomy.topic.corpora import block_membership as blocks
from scripts.anatomy.topic.masking import MaskedBatch, mask
from scripts.anatomy.topic.settings import TopicMaskingSettings, TopicVariantSettings

WORDS = 20
D_VOCAB = WORDS + FIRST_WORD


def documents(docs: int, words: int, *, seed: int = 0, pads: int = 0) -> Tensor:
    """Return documents of one length: START, words, END and padding."""
    generator = torch.Generator().manual_seed(seed)
    body = torch.randint(FIRST_WORD, D_VOCAB, (docs, words), generator=generator)
    return torch.nn.functional.pad(
        torch.nn.functional.pad(body, (1, 0), value=START), (0, 1 + pads), value=END
    ).index_fill_(1, torch.arange(words + 2, words + 2 + pads), PAD)


def masked(tokens: Tensor, *, seed: int = 0, **masking: object) -> MaskedBatch:
    return mask(
        tokens,
        TopicMaskingSettings.model_validate(masking),
        D_VOCAB,
        torch.Generator().manual_seed(seed),
    )


@st.composite
def masked_batches(draw: st.DrawFn) -> MaskedBatch:
    """Ragged documents under any masking."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    rows = []
    for length in lengths:
        body = draw(
            st.lists(st.integers(FIRST_WORD, D_VOCAB - 1), min_size=length, max_size=length)
        )
        framed = [START, *body, END] if draw(st.booleans()) else body
        rows.append(framed + [PAD] * (11 - len(framed)))
    keep_prob = draw(st.floats(0, 1))
    return masked(
        torch.tensor(rows),
        seed=draw(st.integers(0, 99)),
        mask_prob=draw(st.floats(1e-6, 1 - 1e-6)),
        keep_prob=keep_prob,
        random_prob=draw(st.floats(0, 1)) * (1 - keep_prob),
        context=draw(st.sampled_from(["visible", "hidden"])),
        random_tokens=draw(st.sampled_from(["words", "all"])),
    )


def assert_share(hits: Tensor, expected: float) -> None:
    """Assert that a share is within five standard deviations of the expected one."""
    n = hits.numel()
    bound = 5 * np.sqrt(expected * (1 - expected) / n)
    assert abs(hits.double().mean().item() - expected) <= bound + 1e-12


@pytest.mark.parametrize("random_tokens", ["words", "all"])
@pytest.mark.parametrize(
    ("mask_prob", "keep_prob", "random_prob"),
    [(0.15, 0.1, 0.1), (0.4, 0.3, 0.5), (0.05, 0.0, 0.9), (0.7, 0.6, 0.0)],
)
def test_shares(mask_prob: float, keep_prob: float, random_prob: float, random_tokens: str) -> None:
    tokens = documents(1500, 100, pads=3)
    shares = {"mask_prob": mask_prob, "keep_prob": keep_prob, "random_prob": random_prob}
    batch = masked(tokens, random_tokens=random_tokens, **shares)
    is_word = tokens >= FIRST_WORD
    assert_share(batch.selected[is_word], mask_prob)
    true, seen = batch.target, batch.query
    # a random token may by chance be the true one, or MASK
    chance = random_prob / (WORDS if random_tokens == "words" else D_VOCAB)
    assert_share(seen == true, keep_prob + chance)
    assert_share(
        seen == MASK, 1 - keep_prob - random_prob + (chance if random_tokens == "all" else 0)
    )
    special = torch.isin(seen, torch.tensor([PAD, START, END]))
    assert_share(special, 3 * chance if random_tokens == "all" else 0)
    # selection does not depend on the position, nor replacement on the word
    assert_share(batch.selected[:, 1], mask_prob)
    assert_share(batch.selected[:, 100], mask_prob)
    assert_share(seen[true == FIRST_WORD] == FIRST_WORD, keep_prob + chance)


def test_random_words_are_uniform_over_their_range() -> None:
    tokens = documents(800, 60)
    for random_tokens, lowest in (("words", FIRST_WORD), ("all", 0)):
        batch = masked(
            tokens, mask_prob=0.5, keep_prob=0, random_prob=1, random_tokens=random_tokens
        )
        drawn = torch.bincount(batch.query, minlength=D_VOCAB)
        assert len(drawn) == D_VOCAB
        assert (drawn[:lowest] == 0).all()
        expected = len(batch.query) / (D_VOCAB - lowest)
        assert (drawn[lowest:] - expected).abs().max() < 5 * np.sqrt(expected)


@given(masked_batches())
def test_only_words_are_selected_and_at_least_one_a_document(batch: MaskedBatch) -> None:
    assert (batch.tokens[batch.selected] >= FIRST_WORD).all()
    assert batch.selected.any(dim=1).all()
    assert batch.observed[~batch.selected].equal(batch.tokens[~batch.selected])


def test_the_word_selected_at_least_is_uniform_over_positions() -> None:
    tokens = documents(4000, 5, pads=2)
    batch = masked(tokens, mask_prob=1e-6)
    assert batch.selected.sum(dim=1).tolist() == [1] * 4000
    for position in range(1, 6):
        assert_share(batch.selected[:, position], 1 / 5)


def test_all_kept_all_random_or_all_masked() -> None:
    tokens = documents(30, 40)
    kept = masked(tokens, mask_prob=0.5, keep_prob=1, random_prob=0)
    assert kept.observed.equal(tokens)
    gone = masked(tokens, mask_prob=0.5, keep_prob=0, random_prob=0)
    assert (gone.query == MASK).all()
    random = masked(tokens, mask_prob=0.5, keep_prob=0, random_prob=1)
    assert not (random.query == MASK).any()
    assert gone.selected.equal(random.selected)  # the draw does not depend on the replacement


@given(masked_batches())
def test_attended_positions(batch: MaskedBatch) -> None:
    for index, attended in np.ndenumerate(batch.attended.numpy()):
        hidden = batch.hidden and bool(batch.selected[index])
        assert attended == (batch.tokens[index] != PAD and not hidden)


@pytest.mark.parametrize(("context", "hidden"), [("visible", False), ("hidden", True)])
def test_context_hidden_excludes_selected_positions(context: str, hidden: bool) -> None:
    batch = masked(documents(10, 20), context=context)
    assert batch.hidden is hidden
    assert batch.attended[batch.selected].any().item() is not hidden
    assert batch.attended[~batch.selected].all()


@given(masked_batches())
def test_counts_and_positions_against_plain_loops(batch: MaskedBatch) -> None:
    counts = torch.zeros(len(batch.tokens), D_VOCAB)
    positions = []
    for d in range(len(batch.tokens)):
        for i in range(batch.tokens.shape[1]):
            if batch.attended[d, i]:
                counts[d, batch.observed[d, i]] += 1
            if batch.selected[d, i]:
                positions.append((d, int(batch.tokens[d, i]), int(batch.observed[d, i])))
    assert batch.counts(D_VOCAB).equal(counts)
    result = zip(batch.document.tolist(), batch.target.tolist(), batch.query.tolist(), strict=True)
    assert list(result) == positions


@given(masked_batches(), st.data())
def test_rows_selects_documents(batch: MaskedBatch, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(batch.tokens) - 1), min_size=1, max_size=6))
    part = batch.rows(torch.tensor(index))
    assert part.hidden == batch.hidden
    for name in ("tokens", "observed", "selected", "attended"):
        assert getattr(part, name).tolist() == [getattr(batch, name)[i].tolist() for i in index]
    assert part.counts(D_VOCAB).equal(batch.counts(D_VOCAB)[index])
    # the documents are renumbered
    assert sorted(set(part.document.tolist())) == list(range(len(index)))


def test_masks_depend_on_the_generator_alone() -> None:
    tokens, before = documents(20, 30), torch.get_rng_state()
    one, same, other = (masked(tokens, seed=seed) for seed in (1, 1, 2))
    for field in fields(MaskedBatch)[:-1]:
        assert getattr(one, field.name).equal(getattr(same, field.name))
    assert not one.selected.equal(other.selected)
    assert torch.get_rng_state().equal(before)
    assert tokens.equal(documents(20, 30))  # the input is unchanged


# --- the batches of a training ------------------------------------------------------------------


def batches(seed: int = 0, docs: int = 23, **variant: object) -> experiment._Batches:
    """Return batches of documents that all differ in their first two words."""
    train = documents(docs, 12).numpy().astype(np.int16)
    train[:, 1] = FIRST_WORD + np.arange(docs) % WORDS
    train[:, 2] = FIRST_WORD + np.arange(docs) // WORDS
    corpus = Corpus(train, train[:3], blocks(WORDS, 4))
    return experiment._Batches(
        corpus, TopicVariantSettings.model_validate({"batch": 5} | variant), seed, "cpu"
    )


def numbers(batch: MaskedBatch) -> list[int]:
    """Return the numbers of the documents in a batch."""
    return (batch.tokens[:, 1] + WORDS * batch.tokens[:, 2] - FIRST_WORD * (1 + WORDS)).tolist()


def test_an_epoch_has_documents_once_in_a_new_order() -> None:
    source = batches()
    epochs = [
        [number for step in range(4 * epoch, 4 * epoch + 4) for number in numbers(source.at(step))]
        for epoch in range(6)
    ]
    for epoch in epochs:
        assert (
            len(epoch) == len(set(epoch)) == 20
        )  # four batches of five; three documents are left out
    assert len({tuple(epoch) for epoch in epochs}) == 6
    assert set().union(*epochs) == set(range(23))


@pytest.mark.parametrize("fresh", [True, False])
def test_the_batch_of_a_step_does_not_depend_on_the_steps_before(fresh: bool) -> None:
    forwards, jumping = (batches(masking={"fresh": fresh}) for _ in range(2))
    in_order = [forwards.at(step) for step in range(12)]
    for step in (11, 3, 4, 0, 7):
        for name in ("tokens", "observed", "selected"):
            assert getattr(jumping.at(step), name).equal(getattr(in_order[step], name))
    assert not in_order[0].tokens.equal(batches(seed=1).at(0).tokens)


@pytest.mark.parametrize("fresh", [True, False])
def test_masks_are_drawn_per_step_or_once(fresh: bool) -> None:
    source = batches(masking={"fresh": fresh, "context": "hidden"})
    seen: dict[int, list[tuple[list[int], list[int]]]] = {}
    for step in range(12):
        batch = source.at(step)
        assert batch.hidden
        rows = zip(batch.observed.tolist(), batch.selected.tolist(), strict=True)
        for number, row in zip(numbers(batch), rows, strict=True):
            seen.setdefault(number, []).append(row)
    repeated = [rows for rows in seen.values() if len(rows) == 3]
    assert len(repeated) > 5
    assert all((rows[0] == rows[1] == rows[2]) is not fresh for rows in repeated)


def test_a_batch_is_never_larger_than_the_corpus() -> None:
    source = batches(docs=3, batch=40)
    assert sorted(numbers(source.at(5))) == [0, 1, 2]
