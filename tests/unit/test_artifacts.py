"""Files are complete or absent, and an error names the file in one line."""

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scripts.anatomy import artifacts
from scripts.anatomy.artifacts import (
    UnreadableArtifact,
    UnwritableArtifact,
    digest,
    link_or_copy,
    read_json,
    read_metadata,
    read_table,
    read_tensors,
    write_json,
    write_table,
    write_tensors,
    writing,
)

ROOT = Path(__file__).parents[2]
TABLE = pd.DataFrame(
    {"token": ["Ġthe", "null", "a,b"], "count": [1, 2, 3], "loss": [0.1, float("nan"), 1 / 3]}
)
ARRAYS = {"W_E": np.arange(12, dtype=np.float32).reshape(3, 4), "step": np.array(7)}

# Every kind of file: name, writer and reader
KINDS: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], Any]]] = {
    "json": ("a.json", lambda path: write_json(path, {"loss": [1.5, 2], "name": "x"}), read_json),
    "tensors": ("a.safetensors", lambda path: write_tensors(path, ARRAYS), read_tensors),
    "torch": (
        "t.safetensors",
        lambda path: write_tensors(path, ARRAYS),
        lambda path: read_tensors(path, framework="torch"),
    ),
    "metadata": (
        "m.safetensors",
        lambda path: write_tensors(path, ARRAYS, {"model": "tiny"}),
        read_metadata,
    ),
    "csv": ("a.csv", lambda path: write_table(path, TABLE), read_table),
    "parquet": ("a.parquet", lambda path: write_table(path, TABLE), read_table),
}
kinds = pytest.mark.parametrize(("name", "write", "read"), KINDS.values(), ids=KINDS)


# --- atomic writes ------------------------------------------------------------------------------


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "loss.json"
    with writing(target) as temporary:
        temporary.write_text("complete")
        assert temporary.parent == target.parent
        assert temporary.suffix == ".json"
        assert not target.exists()
    assert target.read_text() == "complete"
    assert os.listdir(target.parent) == ["loss.json"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_keeps_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(error), writing(target) as temporary:
        temporary.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_at_the_flush_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifacts.os, "fsync", full)
    with (
        pytest.raises(UnwritableArtifact, match="a.txt: cannot be written: No space left"),
        writing(tmp_path / "a.txt", durable=True) as temporary,
    ):
        temporary.write_text("complete")
    assert os.listdir(tmp_path) == []


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_json(tmp_path / "a.json", {})
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


# --- unreadable files ---------------------------------------------------------------------------


@kinds
def test_a_written_file_is_readable(
    tmp_path: Path, name: str, write: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    write(tmp_path / name)
    assert len(read(tmp_path / name)) > 0


@kinds
def test_truncated_files_are_refused(
    tmp_path: Path, name: str, write: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    path = tmp_path / name
    write(path)
    content = path.read_bytes()
    for length in {0, 1, 7, 8, 9, len(content) // 3, len(content) // 2, len(content) - 2}:
        path.write_bytes(content[:length])
        assert_unreadable(path, read)


@kinds
@pytest.mark.parametrize("content", [b"\x00\xff\xfe" * 100, b"<html>404</html>", b"\x89PNG\r\n"])
def test_files_of_another_format_are_refused(
    tmp_path: Path,
    name: str,
    write: Callable[[Path], None],
    read: Callable[[Path], Any],
    content: bytes,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert_unreadable(path, read)


@kinds
def test_missing_files_and_folders_are_refused(
    tmp_path: Path, name: str, write: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    path = tmp_path / name
    assert "is missing" in assert_unreadable(path, read)
    path.mkdir()
    assert "is not a file" in assert_unreadable(path, read)


def assert_unreadable(path: Path, read: Callable[[Path], Any]) -> str:
    """Return the error, which is one line that names the file."""
    with pytest.raises(UnreadableArtifact) as caught:
        read(path)
    message = str(caught.value)
    assert caught.value.path == path
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_the_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(UnreadableArtifact("a/b.json", "is empty")))
    assert (error.path, str(error)) == (Path("a/b.json"), "a/b.json: is empty")


def test_json_of_extreme_depth_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 200_000)
    assert_unreadable(tmp_path / "a.json", read_json)


# --- JSON ---------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON_VALUES))
def test_json_round_trip(tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "roundtrip.json"
    write_json(path, value)
    assert read_json(path) == value


def test_nan_and_infinity_become_null_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"b": float("nan"), "a": [float("inf"), np.float32("nan"), (1, -0.5)]})
    assert (
        path.read_text()
        == '{\n "a": [\n  null,\n  null,\n  [\n   1,\n   -0.5\n  ]\n ],\n "b": null\n}\n'
    )


def test_arrays_and_their_scalars_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"n": np.int64(3), "x": np.array([1.5, np.nan]), "t": torch.ones(2), 5: 1})
    assert read_json(path) == {"n": 3, "x": [1.5, None], "t": [1.0, 1.0], "5": 1}


def test_json_refuses_other_types_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"path": object()})
    assert os.listdir(tmp_path) == []


def test_a_bare_json_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("12")
    assert "bare int" in assert_unreadable(tmp_path / "a.json", read_json)


# --- tensors ------------------------------------------------------------------------------------


def test_numpy_round_trip_keeps_shapes_and_types(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    arrays = {
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), dtype=np.int32),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "flags": np.array([True, False]),
        "big_endian": np.arange(3, dtype=">f4"),
    }
    write_tensors(path, arrays)
    loaded = read_tensors(path)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].shape == array.shape
        assert loaded[name].dtype == array.dtype.newbyteorder("=")


def test_torch_tensors_may_share_storage_and_mix_with_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    write_tensors(path, {"W_E": weight, "W_U": weight.T, "b": np.ones(2), "h": weight.bfloat16()})
    loaded = read_tensors(path, framework="torch")
    assert loaded["W_E"].equal(weight.detach())
    assert loaded["W_U"].equal(weight.detach().T)
    assert loaded["b"].dtype == torch.float64
    assert loaded["h"].dtype == torch.bfloat16


def test_equal_tensors_and_metadata_give_equal_bytes(tmp_path: Path) -> None:
    metadata = {f"clé {i}": f'"{i}"\n\x1f/é' for i in range(20)}
    for name in ("one", "two"):
        write_tensors(tmp_path / name, ARRAYS, metadata)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert read_metadata(tmp_path / "one") == metadata
    assert read_tensors(tmp_path / "one").keys() == ARRAYS.keys()


def test_a_file_without_metadata_has_an_empty_mapping(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", ARRAYS)
    assert read_metadata(tmp_path / "a") == {}


def test_numpy_files_need_neither_torch_nor_pandas(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; from scripts.anatomy import artifacts as a;"
        f"path = {str(tmp_path / 'a.safetensors')!r};"
        "a.write_tensors(path, {'a': np.ones(2)}, {'k': 'v'}); a.read_tensors(path);"
        "a.read_metadata(path); assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_table_round_trip(tmp_path: Path, ending: str) -> None:
    write_table(tmp_path / f"a.{ending}", TABLE)
    pd.testing.assert_frame_equal(read_table(tmp_path / f"a.{ending}"), TABLE)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)))
def test_any_word_in_a_csv(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "words.csv"
    write_table(path, pd.DataFrame({"word": ["w", *words], "n": range(len(words) + 1)}))
    assert read_table(path)["word"].tolist() == ["w", *words]


def test_numbers_in_a_csv_keep_all_bits(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=2000) * 10.0 ** generator.integers(-300, 300, size=2000)
    write_table(tmp_path / "a.csv", pd.DataFrame({"x": [*values, np.inf, np.nan]}))
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv")["x"], [*values, np.inf, np.nan])


def test_a_table_with_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="csv or .parquet"):
        write_table(tmp_path / "a.xlsx", TABLE)
    with pytest.raises(ValueError, match="csv or .parquet"):
        read_table(tmp_path / "a.pickle")


# --- whole files --------------------------------------------------------------------------------


def test_a_digest_depends_on_contents_and_their_order(tmp_path: Path) -> None:
    for name, content in {"a": "xy", "b": "z", "c": "x", "d": "yz", "e": "xy"}.items():
        (tmp_path / name).write_text(content)
    a, b, c, d, e = (tmp_path / name for name in "abcde")
    assert digest(a) == digest([a]) == digest(str(e))
    assert len({digest(paths) for paths in ([a, b], [b, a], [c, d], [a], [])}) == 5
    with pytest.raises(UnreadableArtifact):
        digest([a, tmp_path / "missing"])


def test_a_link_replaces_its_target(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("new")
    target.write_text("old")
    for _ in range(2):  # the second time both are the same file already
        link_or_copy(source, target)
        assert target.samefile(source)
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_a_link_to_a_symbolic_link_is_a_link_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("weights")
    (tmp_path / "snapshot").symlink_to("blob")
    link_or_copy(tmp_path / "snapshot", tmp_path / "deep" / "model")
    assert (tmp_path / "deep" / "model").samefile(tmp_path / "blob")


def test_files_are_copied_where_links_do_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(artifacts.os, "link", refuse)
    (tmp_path / "source").write_text("new")
    link_or_copy(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_text() == "new"
    assert not (tmp_path / "target").samefile(tmp_path / "source")
    with pytest.raises(UnreadableArtifact):
        link_or_copy(tmp_path / "missing", tmp_path / "target")
