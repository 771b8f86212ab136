"""Files that are whole or absent: atomic writes, and reads that say what is wrong with a file.

A write goes to a temporary name in the same folder and is then renamed, so that a killed job or a
full disk never leaves half a file under the real name. A read of a missing,
empty, truncated or foreign file raises `UnreadableArtifact`. pandas and torch are imported only by
the calls that need them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas
    import torch


class UnreadableArtifact(ValueError):
    """A file that is missing, or is not what its name promises. Attributes: path, reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def first_line(error: Exception) -> str:
    """What an error says, in one line: its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def writing(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which becomes `path` when the block ends well.

    The temporary name keeps the ending, for writers that choose a format by it. When the block
    raises, or the disk is full, the temporary file goes and an older `path` stays as it was. A
    `durable` file has also reached the disk before it is renamed, so that it survives a power cut;
    that costs a tenth of a second, which a training's state is worth and a figure is not.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(4)}.tmp.{path.name}")
    try:
        yield temporary
        if durable:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        if temporary.stat().st_nlink == 1:  # a link has the permissions of the file it is
            temporary.chmod(0o666 & ~_umask())  # safetensors' files only the owner can read
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing_folder(path: str | Path) -> Iterator[Path]:
    """The same for a folder: yields a temporary one, which replaces `path` when the block ends."""
    path = Path(path)
    temporary = path.with_name(f".{secrets.token_hex(4)}.tmp.{path.name}")
    old = temporary.with_suffix(".old")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            path.rename(old)  # at once: a removal that is killed would leave half a folder
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _reading(path: str | Path, kind: str) -> Iterator[None]:
    """Turns whatever goes wrong in reading `path` as `kind` into one clear line."""
    path = Path(path)
    if not path.is_file():
        raise UnreadableArtifact(path, "is not a file" if path.exists() else "is missing")
    if path.stat().st_size == 0:
        raise UnreadableArtifact(path, "is empty")
    try:
        yield
    except (UnreadableArtifact, MemoryError, ImportError):
        raise
    except Exception as error:  # each library has its own; all of them are about this file
        reason = f"is not readable as {kind}, it may be cut off ({first_line(error)})"
        raise UnreadableArtifact(path, reason) from error


# --- JSON ---------------------------------------------------------------------------------------


def write_json(path: str | Path, value: Mapping[Any, Any] | list[Any]) -> None:
    """Writes a mapping or a list as JSON with sorted keys.

    Arrays and numbers of numpy and torch become lists and numbers. NaN and infinities, which JSON
    does not have, become null: a metric that could not be computed reads back as None.
    """
    text = json.dumps(_plain(value), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    with writing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """The value in JSON's own types. Anything foreign is left for `json.dumps` to refuse."""
    if hasattr(value, "tolist"):  # numpy and torch, arrays and scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: str | Path) -> Any:
    """The mapping or list in a JSON file.

    A bare number or word is refused: cut short, it would still be one.
    """
    with _reading(path, "JSON"):
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(value, dict | list):
            raise ValueError(f"holds a bare {type(value).__name__}")
    return value


# --- tensors ------------------------------------------------------------------------------------


def write_tensors(
    path: str | Path,
    tensors: Mapping[str, np.ndarray | torch.Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Writes named arrays as safetensors; equal contents give equal bytes.

    Any device, strides, and tensors that share storage (tied weights) are fine; each is written
    out in full. torch is imported only if one of the values is a torch tensor.
    """
    if all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        from safetensors.numpy import save_file

        # `ascontiguousarray` would give a scalar a dimension.
        plain = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    else:
        from safetensors.torch import save_file

        plain = {name: _own_copy(tensor) for name, tensor in tensors.items()}
    with writing(path, durable=durable) as temporary:
        save_file(plain, temporary, dict(metadata or {}) or None)
        _sort_metadata(temporary)


def _own_copy(tensor: np.ndarray | torch.Tensor) -> torch.Tensor:
    """A contiguous CPU tensor with storage of its own."""
    import torch

    return torch.as_tensor(tensor).detach().to("cpu", copy=True).contiguous()


def _sort_metadata(path: Path) -> None:
    """Sorts the metadata in a safetensors header, which the library writes in random order."""
    with path.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        if "__metadata__" in header:
            header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
            text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
            file.seek(8)
            file.write(text.ljust(size))


def read_tensors(
    path: str | Path, *, framework: Literal["numpy", "torch"] = "numpy"
) -> dict[str, Any]:
    """The named arrays of a safetensors file, as numpy arrays or as torch tensors on the CPU.

    numpy has no bfloat16: read such a file with torch.
    """
    if framework == "torch":
        from safetensors.torch import load_file
    else:
        from safetensors.numpy import load_file
    with _reading(path, "safetensors"):
        return load_file(path)


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a safetensors file, without its arrays."""
    from safetensors import safe_open

    with _reading(path, "safetensors"), safe_open(path, framework="numpy") as file:
        return file.metadata() or {}


# --- tables -------------------------------------------------------------------------------------


def write_table(path: str | Path, table: pandas.DataFrame) -> None:
    """Writes a data frame as `.csv` or `.parquet`, without its index.

    Raises ValueError for another ending.
    """
    ending = _ending(path)
    with writing(path) as temporary:
        if ending == ".csv":
            table.to_csv(temporary, index=False, lineterminator="\n")
        else:
            table.to_parquet(temporary, index=False)


def read_table(path: str | Path) -> pandas.DataFrame:
    """The data frame in a `.csv` or `.parquet` file.

    In a CSV only an empty field is a missing value (a token "null" or "NA" stays a word), and the
    last line must end: a file cut inside a line is refused, one cut between two lines cannot be
    told from a whole one.
    """
    import pandas

    ending = _ending(path)
    with _reading(path, ending[1:]):
        if ending == ".parquet":
            return pandas.read_parquet(path)
        _check_last_line(path)
        return pandas.read_csv(path, keep_default_na=False, na_values=[""], lineterminator="\n")


def _ending(path: str | Path) -> str:
    ending = Path(path).suffix
    if ending not in (".csv", ".parquet"):
        raise ValueError(f"{path}: a table ends in .csv or .parquet")
    return ending


def _check_last_line(path: str | Path) -> None:
    with Path(path).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            raise ValueError("the last line does not end")


# --- whole files --------------------------------------------------------------------------------


def digest(paths: str | Path | Iterable[str | Path]) -> str:
    """A hash of the contents of one file, or of several in the order given; names do not count."""
    whole = hashlib.blake2b(digest_size=16)
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if not Path(path).is_file():
            raise UnreadableArtifact(path, "is missing")
        with Path(path).open("rb") as file:  # hashed file by file, so that boundaries count
            whole.update(hashlib.file_digest(file, hashlib.blake2b).digest())
    return whole.hexdigest()


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Makes `target` the same file as `source`: a hard link, or a copy across file systems.

    A link shares its modification time with `source`. An older `target` is replaced in one step.
    """
    if not Path(source).is_file():
        raise UnreadableArtifact(source, "is missing")
    with writing(target) as temporary:
        try:
            os.link(Path(source).resolve(), temporary)  # the file, not a link that points to it
        except OSError:
            shutil.copyfile(source, temporary)
