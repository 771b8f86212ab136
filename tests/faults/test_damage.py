"""Damaged files: a reader returns what was written, or raises one line. Never a wrong number.

Tensors, Parquet tables, packed rows and stored models carry a checksum, so every bit counts. JSON
and CSV are text that you may edit: there only invalid text is detected.
"""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gensim
import numpy as np
import pandas as pd
import pytest
import torch
from checkouts import Checkout
from tokenizers import Tokenizer, models

from scripts.anatomy import artifacts
from scripts.anatomy.artifacts import UnreadableArtifact
from scripts.anatomy.embedding.index import Index, TopLists, write_index
from scripts.anatomy.models import checkpoints
from scripts.anatomy.pretraining import tokenizer
from scripts.anatomy.text import lda

TABLE = pd.DataFrame({"word": ["a", "b", "c"] * 9, "x": np.arange(27) / 7})
TENSORS = {"W_E": np.arange(12.0).reshape(3, 4), "step": np.array(7)}
LISTS = TopLists(
    np.zeros(3, np.int64), np.arange(3), np.ones(3, np.float32), *([np.ones((3, 2))] * 4)
)


def read_index(path: Path) -> Any:
    index = Index(path)
    lists = {key: vars(index.read(*key)) for key in index.groups}
    return lists, index.d_vocab, index.top, index.layers


Writer, Reader = Callable[[Path], None], Callable[[Path], Any]
CHECKED: dict[str, tuple[str, Writer, Reader]] = {
    "numpy": (
        "a.safetensors",
        lambda path: artifacts.write_tensors(path, TENSORS, {"words": '["a", "b"]'}),
        lambda path: (artifacts.read_tensors(path), artifacts.read_metadata(path)),
    ),
    "torch": (
        "a.safetensors",
        lambda path: artifacts.write_tensors(path, {"w": torch.ones(3, dtype=torch.bfloat16)}),
        lambda path: artifacts.read_tensors(path, framework="torch"),
    ),
    "checkpoints": (
        "a.safetensors",
        lambda path: artifacts.write_tensors(path, {"step": np.arange(3), "w": np.zeros((3, 2))}),
        checkpoints.steps,
    ),
    "table": (
        "a.parquet",
        lambda path: artifacts.write_table(path, TABLE),
        artifacts.read_table,
    ),
    "index": (
        "a.parquet",
        lambda path: write_index(path, [(0, "K", LISTS), (2, "V", LISTS)], d_vocab=9),
        read_index,
    ),
}
checked = pytest.mark.parametrize(("name", "write", "read"), CHECKED.values(), ids=CHECKED)


def flips(content: bytes, count: int) -> list[bytes]:
    """Copies of the content with one random bit flipped, in up to `count` different bytes."""
    positions = random.sample(range(len(content)), min(count, len(content)))
    copies = [bytearray(content) for _ in positions]
    for position, copy in zip(positions, copies, strict=True):
        copy[position] ^= 1 << random.randrange(8)
    return [bytes(copy) for copy in copies]


def assert_one_line(error: UnreadableArtifact, path: Path) -> None:
    assert error.path == path and "\n" not in str(error)


@checked
def test_a_flipped_bit_never_changes_what_is_read(
    tmp_path: Path, name: str, write: Writer, read: Reader
) -> None:
    path = tmp_path / name
    write(path)
    written = repr(read(path))
    for content in flips(path.read_bytes(), count=400):
        path.write_bytes(content)
        try:
            assert repr(read(path)) == written  # a bit of the file that no reader uses
        except UnreadableArtifact as error:
            assert_one_line(error, path)


@checked
def test_a_checksum_of_other_contents_is_refused(
    tmp_path: Path, name: str, write: Writer, read: Reader
) -> None:
    """The file is valid for the library that reads it."""
    path = tmp_path / name
    write(path)
    content = path.read_bytes()
    digits = re.search(rb"[0-9a-f]{32}", content[content.index(b"checksum") :])[0]
    path.write_bytes(content.replace(digits, b"0123456789abcdef" * 2))
    with pytest.raises(UnreadableArtifact, match="do not match its checksum"):
        read(path)


def test_the_checksum_is_not_part_of_the_metadata(tmp_path: Path) -> None:
    """Metadata may have a key of its own with that name."""
    path = tmp_path / "a.safetensors"
    for metadata in ({"words": "[]"}, {"checksum": "mine"}):
        artifacts.write_tensors(path, TENSORS, metadata)
        assert artifacts.read_metadata(path) == metadata


def test_files_of_other_programs_are_read(tmp_path: Path) -> None:
    """Models of the hub and a user's own tables have no checksum."""
    from safetensors.numpy import save_file

    save_file(TENSORS, tmp_path / "a.safetensors")
    assert artifacts.read_tensors(tmp_path / "a.safetensors").keys() == TENSORS.keys()
    TABLE.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(artifacts.read_table(tmp_path / "a.parquet"), TABLE)


@pytest.mark.parametrize(
    ("name", "write", "read"),
    [
        (
            "a.json",
            lambda path: artifacts.write_json(path, {"loss": [1.5, None], "name": "Größe"}),
            artifacts.read_json,
        ),
        (
            "a.csv",
            lambda path: artifacts.write_table(path, TABLE.head(3)),
            artifacts.read_table,
        ),
    ],
    ids=["json", "csv"],
)
def test_a_flipped_bit_in_text_leaves_valid_text_or_is_one_line(
    tmp_path: Path, name: str, write: Writer, read: Reader
) -> None:
    path = tmp_path / name
    write(path)
    for content in flips(path.read_bytes(), count=200):
        path.write_bytes(content)
        try:
            read(path)
        except UnreadableArtifact as error:
            assert_one_line(error, path)


def test_truncated_bags_or_dictionary_are_refused(tmp_path: Path) -> None:
    """Gensim reads a truncated file as a smaller corpus."""
    texts = [f"horse violin comet flour {name}".split() for name in ("oven", "sugar", "yeast")]
    words = gensim.corpora.Dictionary(texts)
    dictionary, bags = tmp_path / "dictionary.txt", tmp_path / "bags.mm"
    words.save_as_text(str(dictionary))
    lda.save_bags(bags, lda.bags(map(" ".join, texts), words, tfidf=False))
    lda.load(dictionary, bags)
    for path in (dictionary, bags):
        content = path.read_bytes()
        for length in range(len(content)):
            path.write_bytes(content[:length])
            with pytest.raises(UnreadableArtifact):
                lda.load(dictionary, bags)
        path.write_bytes(content)


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    names = [*tokenizer.SPECIAL.values(), "word"]
    made = Tokenizer(models.WordPiece({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    files = (tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json")
    tokenizer.save(made, tokenizer.SPECIAL, files)
    assert tokenizer.load(files)[1] == (0, 1, 2, 3, 4)
    for path in files:
        content = path.read_bytes()
        assert content.count(b"[MASK]") >= 1
        for damaged in (b"", content[:40], b"{}", content.replace(b"[MASK]", b"[MASC]")):
            path.write_bytes(damaged)
            with pytest.raises(UnreadableArtifact):
                tokenizer.load(files)
        path.write_bytes(content)


# --- through the workflow -----------------------------------------------------------------------


def test_a_job_that_reads_a_damaged_model_names_it_and_its_rule(checkout: Checkout) -> None:
    weights = checkout.path("models/encoder/weights/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.unlink()  # it may be a link to the user's own file
    weights.write_bytes(content)
    reader = checkout.path("text/stories/encoder/run.json")
    reader.unlink()
    printed = checkout.snakemake("--", "results/text/stories/encoder/run.json", status=1)
    *_, line = checkout.log_of_failure(printed).splitlines()
    assert line == (
        "results/models/encoder/weights: is damaged: its files do not match the digest in "
        "results/models/encoder/source.json; it is made by rule model. "
        "Delete the file and run again."
    )
    assert not reader.exists()
