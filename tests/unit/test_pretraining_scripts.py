"""The jobs that make text ready: what they write, and what they say when they cannot."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models

from scripts.anatomy import artifacts
from scripts.anatomy.pretraining import data
from scripts.anatomy.pretraining.settings import PretrainingMaskingSettings
from scripts.pretraining import baseline
from scripts.pretraining import data as data_script
from scripts.pretraining import tokenizer as tokenizer_script


def corpus(folder: Path, texts: list[str]) -> dict[str, object]:
    """A corpus of the text study, a document a line."""
    path = folder / "texts.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return {"kind": "lines", "path": str(path), "min_length": 1}


def prepared(folder: Path, texts: list[str], *, d_vocab: int = 150, length: int = 16) -> None:
    """Run both jobs in a folder."""
    source = corpus(folder, texts)
    files = {"tokenizer": folder / "tokenizer.json", "names": folder / "tokenizer_config.json"}
    choice = {"d_vocab": d_vocab, "alphabet": 40}
    tokenizer_script.main(
        SimpleNamespace(
            params=SimpleNamespace(tokenizer=choice, corpus=source),
            output=SimpleNamespace(**files),
        )
    )
    rows = {"train": folder / "train.npy", "validation": folder / "validation.npy"}
    data_script.main(
        SimpleNamespace(
            params=SimpleNamespace(corpus=source, length=length, d_vocab=d_vocab, validation=0.2),
            input=SimpleNamespace(**files),
            output=SimpleNamespace(**rows, info=folder / "data.json"),
            wildcards=SimpleNamespace(corpus="tales"),
        )
    )


def test_text_is_made_ready(tmp_path: Path) -> None:
    """Every document is packed into exactly one of the two parts."""
    texts = tiny_models.documents(60)
    prepared(tmp_path, texts)
    info = artifacts.read_json(tmp_path / "data.json")
    assert sum(info["documents"]) == 60 and min(info["documents"]) > 0
    assert info["tokens"] >= sum(len(text.split()) for text in texts)
    assert info["unknown"] == 0
    files = {name: tmp_path / f"{name}.npy" for name in ("train", "validation")}
    found = data.load(
        SimpleNamespace(**files, info=tmp_path / "data.json"), PretrainingMaskingSettings()
    )
    assert [len(found.train), len(found.validation)] == info["rows"]
    # separators take a place each; less than a row is lost of each part
    inside = 14 * sum(info["rows"])
    assert 0 <= info["tokens"] + 60 - 2 - inside < 2 * 14
    baseline.main(
        SimpleNamespace(
            params=SimpleNamespace(masking={}, rows=50),
            input=SimpleNamespace(**files, info=tmp_path / "data.json"),
            output=[tmp_path / "baseline.json"],
        )
    )
    lines = artifacts.read_json(tmp_path / "baseline.json")
    assert 0 < lines["no_context"] < lines["unigram"] < 6


def test_corpus_without_a_validation_row(tmp_path: Path) -> None:
    """A corpus too short for a validation row is refused with its key."""
    with pytest.raises(SystemExit) as told:
        prepared(tmp_path, tiny_models.documents(2))
    assert str(told.value).startswith("pretraining.corpus: tales is too short for rows of 16")
    assert not (tmp_path / "train.npy").exists()


def test_vocabulary_below_the_letters(tmp_path: Path) -> None:
    """A vocabulary too small for the letters is refused with its key."""
    with pytest.raises(SystemExit, match=r"^pretraining.tokenizer: d_vocab.*got 40"):
        prepared(tmp_path, tiny_models.documents(60), d_vocab=40)
