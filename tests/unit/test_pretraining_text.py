"""Text for pretraining: a tokenizer that is always the same, rows that lose nothing, fair masks."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from scripts.anatomy import artifacts
from scripts.anatomy.artifacts import UnreadableArtifact
from scripts.anatomy.pretraining import data, masking, tokenizer
from scripts.anatomy.pretraining.settings import PretrainingMaskingSettings
from scripts.anatomy.pretraining.tokenizer import Special

ROOT = Path(__file__).parents[2]
TEXTS = tiny_models.documents(40)
SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
D_TOKENS = 50
ORDINARY = masking.ordinary(D_TOKENS, SPECIAL)


def trained(texts: Iterable[str] = TEXTS, **choices: object) -> Tokenizer:
    texts = list(texts)
    sizes = {"size": 150, "alphabet": 40, "lowercase": True} | choices
    return tokenizer.train(lambda: texts, **sizes)


# --- tokenizers ---------------------------------------------------------------------------------


def test_tokenizer_round_trip() -> None:
    """Decoding returns the encoded text."""
    made = trained()
    assert made.get_vocab_size() == 150
    for text in TEXTS[:5]:
        ids = made.encode(text).ids
        assert SPECIAL.unk not in ids
        assert made.decode(ids) == text
    assert [made.token_to_id(name) for name in tokenizer.SPECIAL.values()] == [*SPECIAL]


def test_a_tokenizer_is_the_same_in_every_process() -> None:
    """A trained tokenizer is the same in every process."""
    program = (
        "import random; from scripts.anatomy.pretraining import tokenizer as t; "
        "r = random.Random(0); word = lambda: ''.join(r.choices('abcdefgh', k=r.randint(3, 7))); "
        "texts = [' '.join(word() for _ in range(40)) for _ in range(10)]; "
        "print(t.train(lambda: texts, size=90, alphabet=40, lowercase=True).to_str())"
    )
    command = [sys.executable, "-c", program]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert '"##a"' in first


def test_words_with_rare_letters_are_unknown_and_teach_nothing() -> None:
    """Words with rare letters are unknown and do not enter the vocabulary."""
    made = trained([*TEXTS, "horse ж horse"], alphabet=20)
    assert made.encode("horse ж").ids.count(SPECIAL.unk) == 1
    letters = {piece.removeprefix("##") for piece in made.get_vocab()}
    assert len({piece for piece in letters if len(piece) == 1}) == 20


def test_case_is_kept_on_demand() -> None:
    """Case is kept on demand."""
    texts = ["Horse horse Horse goat"] * 5
    assert "Horse" in trained(texts, size=60, lowercase=False).get_vocab()
    assert "Horse" not in trained(texts, size=60).get_vocab()


def test_vocabulary_below_the_letters() -> None:
    """A vocabulary too small for the letters is refused."""
    with pytest.raises(ValueError, match="d_vocab.*got 32"):
        trained(size=32)


def test_stored_tokenizer(tmp_path: Path) -> None:
    """The transformers library reads a stored tokenizer."""
    files = tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"
    made = trained()
    tokenizer.save(made, tokenizer.SPECIAL, files)
    loaded, special = tokenizer.load(files)
    assert special == SPECIAL
    assert loaded.encode(TEXTS[0]).ids == made.encode(TEXTS[0]).ids
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(TEXTS[0], add_special_tokens=False)["input_ids"] == made.encode(TEXTS[0]).ids
    assert theirs.mask_token_id == SPECIAL.mask


def test_a_models_tokenizer_needs_a_mask_and_room(tmp_path: Path) -> None:
    """A model's tokenizer without a mask, or above d_vocab, is refused."""
    tiny_models.save_bert(tmp_path / "bert")
    with pytest.raises(ValueError, match="no mask token"):
        tokenizer.of_model(tmp_path / "bert", 500)
    with pytest.raises(ValueError, match="does not fit: .* 20"):
        tokenizer.of_model(tmp_path / "bert", 20)


# --- rows ---------------------------------------------------------------------------------------


def packed(folder: Path, documents: list[list[int]], length: int, d_vocab: int = D_TOKENS) -> Path:
    path = folder / "rows.npy"
    with path.open("wb") as file:
        packer = data.Packer(file, length=length, d_vocab=d_vocab, special=SPECIAL)
        for ids in documents:
            packer.add(ids)
        packer.close()
    return path


@given(
    documents=st.lists(st.lists(st.integers(5, 49), min_size=1, max_size=30), max_size=12),
    length=st.integers(4, 12),
)
def test_packing_loses_nothing_but_the_tail(
    documents: list[list[int]], length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Packing keeps all tokens except the tail."""
    rows = data.read(packed(tmp_path_factory.mktemp("rows"), documents, length))
    stream = [token for ids in documents for token in [SPECIAL.sep, *ids]][1:]
    assert rows.shape == (len(stream) // (length - 2), length)
    assert rows[:, 1:-1].ravel().tolist() == stream[: rows.shape[0] * (length - 2)]
    assert (rows[:, 0] == SPECIAL.cls).all() and (rows[:, -1] == SPECIAL.sep).all()


@pytest.mark.parametrize(("d_vocab", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_rows_are_memory_mapped_in_the_smallest_integers(
    d_vocab: int, dtype: type, tmp_path: Path
) -> None:
    """Rows are memory-mapped in the smallest integer type."""
    last = d_vocab - 1
    rows = data.read(packed(tmp_path, [[last] * 1000], 10, d_vocab))
    assert isinstance(rows, np.memmap) and rows.dtype == dtype
    assert (rows[:, 1:-1] == last).all()


def test_damaged_rows_name_their_file(tmp_path: Path) -> None:
    """Damaged rows are refused with their file."""
    path = packed(tmp_path, [[7] * 1000], 10)
    path.write_bytes(path.read_bytes()[:500])
    for wrong in (path, tmp_path / "none.npy"):
        with pytest.raises(UnreadableArtifact, match=str(wrong)):
            data.read(wrong)


def test_split() -> None:
    """The split has the configured share and is always the same."""
    first, second = ([next(of) for _ in range(4000)] for of in (data.split(0.1), data.split(0.1)))
    assert first == second
    assert sum(first) == pytest.approx(400, abs=60)


def test_every_epoch_reads_every_row_once_in_another_order() -> None:
    """Every epoch has every row once, in another order."""
    rows = np.arange(20)[:, None]
    at = data.rows_of_step(rows, batch=5, seed=0)
    epochs = [np.concatenate([at(step) for step in range(e * 4, e * 4 + 4)]) for e in (0, 1)]
    assert all(sorted(epoch.ravel()) == [*range(20)] for epoch in epochs)
    assert (epochs[0] != epochs[1]).any()
    again = data.rows_of_step(rows, batch=5, seed=0)
    assert (again(6) == at(6)).all()  # a function of the step, whatever was asked before
    assert (data.rows_of_step(rows, batch=5, seed=1)(0) != at(0)).any()


def text(train: int = 40, held: int = 6, length: int = 16) -> data.Text:
    rng = np.random.default_rng(0)
    rows = rng.integers(5, D_TOKENS, (train + held, length)).astype(np.uint16)
    rows[:, 0], rows[:, -1] = SPECIAL.cls, SPECIAL.sep
    return data.Text(
        rows[:train], rows[train:], D_TOKENS, D_TOKENS, SPECIAL, PretrainingMaskingSettings()
    )


def test_batch_larger_than_the_text() -> None:
    """A batch larger than the text is refused."""
    data.check_batch(text(), 40)
    with pytest.raises(ValueError, match="got 41"):
        data.check_batch(text(), 41)


def test_text_is_loaded_with_its_ids(tmp_path: Path) -> None:
    """Text is loaded with its special tokens; damaged files are refused."""
    path = packed(tmp_path, [[7] * 100], 10)
    info = {"d_vocab": 64, "d_tokens": D_TOKENS, "special": SPECIAL._asdict()}
    info["digests"] = dict.fromkeys(("train", "validation"), artifacts.digest(path))
    artifacts.write_json(tmp_path / "data.json", info)
    files = SimpleNamespace(train=path, validation=path, info=tmp_path / "data.json")
    found = data.load(files, PretrainingMaskingSettings())
    assert found.special == SPECIAL and (found.d_vocab, found.d_tokens) == (64, D_TOKENS)
    assert len(found.train) == 12
    spoiled = bytearray(path.read_bytes())
    spoiled[-1] ^= 1
    path.write_bytes(spoiled)
    with pytest.raises(UnreadableArtifact, match="rows.npy: is damaged"):
        data.load(files, PretrainingMaskingSettings())


def test_counts_are_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts include all rows."""
    monkeypatch.setattr(data, "ROWS_PER_CHUNK", 7)
    rows = text().train
    assert (data.counts(rows, 60) == np.bincount(rows.ravel(), minlength=60)).all()


# --- masks --------------------------------------------------------------------------------------


def masked(rows: np.ndarray, choice: PretrainingMaskingSettings, seed: int = 0) -> masking.Masked:
    return masking.mask(
        rows, choice, candidates=ORDINARY, special=SPECIAL, rng=np.random.default_rng(seed)
    )


def test_shares_of_masks_are_as_configured() -> None:
    """Masking has the configured probabilities."""
    rows = np.random.default_rng(1).integers(5, D_TOKENS, (400, 100))
    choice = PretrainingMaskingSettings(mask_prob=0.2, random_prob=0.3, keep_prob=0.1)
    found = masked(rows, choice)
    observed = found.observed.ravel()[found.index]
    assert len(found.index) / rows.size == pytest.approx(0.2, abs=0.01)
    assert (observed == SPECIAL.mask).mean() == pytest.approx(0.6, abs=0.02)
    # a random token is the true one once in 45 times
    assert (observed == found.target).mean() == pytest.approx(0.1 + 0.3 / 45, abs=0.02)
    assert {*observed} <= {*ORDINARY, SPECIAL.mask}


def test_only_ordinary_tokens_are_selected_and_the_others_stay() -> None:
    """Only ordinary tokens are selected; others are unchanged."""
    rows = np.random.default_rng(2).integers(0, 10, (50, 40))
    found = masked(rows, PretrainingMaskingSettings(mask_prob=0.9))
    assert not np.isin(found.target, SPECIAL).any()
    assert (found.target == rows.ravel()[found.index]).all()
    others = np.ones(rows.size, dtype=bool)
    others[found.index] = False
    assert (found.observed.ravel()[others] == rows.ravel()[others]).all()


def test_masks_are_a_function_of_seed_and_purpose() -> None:
    """Masks depend on the seed and the purpose only."""
    some = text()
    first, again, other = (some.masked(some.train, seed, "masks", 3) for seed in (0, 0, 1))
    assert (first.observed == again.observed).all()
    assert (first.observed != other.observed).any()


def test_repeated_targets_are_those_seen_elsewhere_in_the_row() -> None:
    """Repeated targets are those visible elsewhere in their row."""
    observed = np.array([[2, 7, 4, 8, 9, 3], [2, 7, 7, 4, 9, 3]])
    index = np.array([2, 3, 7, 9, 10])
    target = np.array([7, 8, 7, 8, 11])
    found = masking.Masked(observed, index, target)
    # visible at another place; kept, and only there; kept, and at another; in the other row; no
    assert found.repeated.tolist() == [True, False, True, False, False]


def test_baselines() -> None:
    """Baselines have the values of Bayes' rule."""
    # ordinary tokens 5 and 6, of frequencies 3/4 and 1/4 with one more of each
    counts = np.array([9, 9, 9, 9, 9, 2, 0])
    choice = PretrainingMaskingSettings(mask_prob=0.5, random_prob=0.2, keep_prob=0.1)
    held = masking.Masked(np.array([[4, 5, 6, 5]]), np.arange(4), np.array([5, 5, 5, 6]))
    u5, u6 = 3 / 4, 1 / 4
    found = masking.baselines([held], counts, choice, SPECIAL)
    unigram = -np.log([u5, u5, u5, u6]).mean()
    assert found["unigram"] == pytest.approx(unigram)
    kept, random = 0.1, 0.2 / 2
    # [MASK] seen; 5 seen and true; 6 seen and 5 true; 5 seen and 6 true
    likely = [
        u5,
        u5 * (kept + random) / (kept * u5 + random),
        u5 * random / (kept * u6 + random),
        u6 * random / (kept * u5 + random),
    ]
    assert found["no_context"] == pytest.approx(-np.log(likely).mean())


def test_no_guess_without_context_is_better_than_the_baseline() -> None:
    """No guess from the observed token is better than the baseline."""
    rng = np.random.default_rng(3)
    u = rng.dirichlet(np.ones(len(ORDINARY)))
    rows = rng.choice(ORDINARY, (500, 200), p=u)
    choice = PretrainingMaskingSettings(random_prob=0.1, keep_prob=0.1)
    counts = np.bincount(rng.choice(ORDINARY, 10**6, p=u), minlength=D_TOKENS)
    found = masking.baselines([masked(rows, choice)], counts, choice, SPECIAL)
    entropy = -(u * np.log(u)).sum()
    assert found["unigram"] == pytest.approx(entropy, abs=0.02)
    # its mean is the entropy of the target given what is observed
    random = choice.random_prob / len(ORDINARY)
    joint = choice.keep_prob * np.diag(u) + random * u[:, None]
    given = joint / joint.sum(axis=0)
    visible = -(joint * np.log(given)).sum()
    hidden = (1 - choice.random_prob - choice.keep_prob) * entropy
    assert found["no_context"] == pytest.approx(hidden + visible, abs=0.02)
