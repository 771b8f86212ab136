"""Files that are whole or absent: atomic writes, and reads that say what is wrong with a file.

A write goes to a temporary name in the same folder and is then renamed, so that a killed job or a
full disk never leaves half a file under the real name; a disk that is full or read-only raises
`UnwritableArtifact`. A read of a missing, empty, truncated or foreign file raises
`UnreadableArtifact`. pandas and torch are imported only by the calls that need them.

Tensors and Parquet tables carry a hash of their content, so that a single wrong bit is noticed.
JSON and CSV do not: they are text, which a person may edit, and a change that leaves valid text
cannot be told from an edit.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from filelock import FileLock, Timeout

if TYPE_CHECKING:
    import pandas
    import torch


logger = logging.getLogger(__name__)

# What only a write can meet: a full disk, a quota, a limit, a read-only or a lockless file system
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENOLCK}


class UnreadableArtifact(ValueError):
    """A file that is missing, or is not what its name promises. Attributes: path, reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class UnwritableArtifact(RuntimeError):
    """A file that cannot be written, for a reason outside of this code. Attributes: path, reason.

    It is no ValueError, since no input is to blame.
    """

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: cannot be written: {self.reason}"


def first_line(error: Exception) -> str:
    """What an error says, in one line: its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def writable(path: str | Path, temporary: Path | None = None) -> Iterator[None]:
    """Turns the failure to write `path`, or `temporary` in its place, into one clear line.

    Other failures pass, since what is written may be read from elsewhere meanwhile.
    """
    try:
        yield
    except Exception as error:
        reason = _unwritable(error, Path(path), temporary or Path(path))
        if reason is None:
            raise
        raise UnwritableArtifact(path, reason) from error


@contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Holds the lock file `path`; logs `waiting` while another process has it.

    Raises UnwritableArtifact if the file, or its folder, cannot be made.
    """
    lock = FileLock(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            logger.warning("%s", waiting)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _unwritable(error: Exception, path: Path, temporary: Path) -> str | None:
    """Why `path` cannot be written, if an error says so."""
    told = re.search(r"\(os error (\d+)\)", str(error))  # as libraries in Rust put it
    number = error.errno if isinstance(error, OSError) else told and int(told[1])
    if number is None:
        return None
    name = getattr(error, "filename", None)
    place = Path(os.fsdecode(name)) if isinstance(name, str | bytes | os.PathLike) else None
    if place in path.parents:
        return f"{place}: {os.strerror(number)}"
    ours = place is not None and any(place.is_relative_to(own) for own in (path, temporary))
    return os.strerror(number) if ours or number in UNWRITABLE else None


@contextmanager
def writing(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which becomes `path` when the block ends well.

    The temporary name keeps the ending, for writers that choose a format by it. When the block
    raises, or the disk is full, the temporary file goes and an older `path` stays as it was. A
    `durable` file has also reached the disk before it is renamed, so that it survives a power cut;
    that costs a tenth of a second, which a training's state is worth and a figure is not.
    Raises UnwritableArtifact if `path` cannot be written.
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        with writable(path, temporary):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch()  # before the work: not every library names what it cannot open
            yield temporary
            if durable:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            if temporary.stat().st_nlink == 1:  # a link has the permissions of the file it is
                temporary.chmod(0o666 & ~_umask())  # safetensors' files only the owner can read
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the first error says why
            temporary.unlink(missing_ok=True)


@contextmanager
def writing_folder(path: str | Path) -> Iterator[Path]:
    """The same for a folder: yields a temporary one, which replaces `path` when the block ends."""
    path = Path(path)
    temporary = _temporary(path)
    old = temporary.with_suffix(".old")
    try:
        with writable(path, temporary):
            temporary.mkdir(parents=True)
            yield temporary
            if path.exists():
                path.rename(old)  # at once: a removal that is killed would leave half a folder
            temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A new name beside `path`."""
    return path.with_name(f".{secrets.token_hex(4)}.tmp.{path.name}")


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files that a killed writer left in a folder and below.

    Only for who knows that nobody else writes there.
    """
    for path in folder.rglob(".*.tmp.*"):
        with writable(folder):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def reading(path: str | Path, kind: str) -> Iterator[None]:
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
    with reading(path, "JSON"):
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
    """Writes named arrays as safetensors, with a hash; equal contents give equal bytes.

    Any device, strides, and tensors that share storage (tied weights) are fine; each is written
    out in full. torch is imported only if one of the values is a torch tensor.
    """
    if metadata and SEAL in metadata:
        raise ValueError(f"the metadata's {SEAL} is that of the hash")
    if all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        from safetensors.numpy import save_file

        # `ascontiguousarray` would give a scalar a dimension.
        plain = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    else:
        from safetensors.torch import save_file

        plain = {name: _own_copy(tensor) for name, tensor in tensors.items()}
    with writing(path, durable=durable) as temporary:
        save_file(plain, temporary, {**(metadata or {}), SEAL: UNSEALED})
        _sort_metadata(temporary)
        seal(temporary)


def _own_copy(tensor: np.ndarray | torch.Tensor) -> torch.Tensor:
    """A contiguous CPU tensor with storage of its own."""
    import torch

    return torch.as_tensor(tensor).detach().to("cpu", copy=True).contiguous()


def _sort_metadata(path: Path) -> None:
    """Sorts the metadata in a safetensors header, which the library writes in random order."""
    with path.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        file.seek(8)
        file.write(text.ljust(size))


def read_tensors(
    path: str | Path, *, framework: Literal["numpy", "torch"] = "numpy"
) -> dict[str, Any]:
    """The named arrays of a safetensors file, as numpy arrays or as torch tensors on the CPU.

    A file that `write_tensors` wrote is checked against its hash. numpy has no bfloat16: read such
    a file with torch.
    """
    if framework == "torch":
        from safetensors.torch import load_file
    else:
        from safetensors.numpy import load_file
    with reading(path, "safetensors"):
        check_seal(path)
        return load_file(path)


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a safetensors file, without its arrays, and without a check of the hash."""
    from safetensors import safe_open

    with reading(path, "safetensors"), safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
    return {name: value for name, value in metadata.items() if name != SEAL}


# --- tables -------------------------------------------------------------------------------------


def write_table(path: str | Path, table: pandas.DataFrame) -> None:
    """Writes a data frame as `.csv` or `.parquet`, the latter with a hash, without its index.

    Raises ValueError for another ending.
    """
    ending = _ending(path)
    with writing(path) as temporary:
        if ending == ".csv":
            table.to_csv(temporary, index=False, lineterminator="\n")
        else:
            _write_parquet(temporary, table)


def _write_parquet(path: Path, table: pandas.DataFrame) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = pyarrow.Table.from_pandas(table, preserve_index=False)
    with pyarrow.parquet.ParquetWriter(path, columns.schema) as writer:
        writer.write_table(columns)
        writer.add_key_value_metadata({SEAL: UNSEALED})
    seal(path)


def read_table(path: str | Path) -> pandas.DataFrame:
    """The data frame in a `.csv` or `.parquet` file.

    A Parquet file that `write_table` wrote is checked against its hash. In a CSV only an empty
    field is a missing value (a token "null" or "NA" stays a word), and the last line must end: a
    file cut inside a line is refused, one cut between two lines cannot be told from a whole one.
    """
    import pandas

    ending = _ending(path)
    with reading(path, ending[1:]):
        if ending == ".parquet":
            check_seal(path)
            return pandas.read_parquet(path)
        check_last_line(path)
        return pandas.read_csv(path, keep_default_na=False, na_values=[""], lineterminator="\n")


def _ending(path: str | Path) -> str:
    ending = Path(path).suffix
    if ending not in (".csv", ".parquet"):
        raise ValueError(f"{path}: a table ends in .csv or .parquet")
    return ending


def check_last_line(path: str | Path) -> None:
    """Raises ValueError if a text file that is not empty was cut off inside a line."""
    with Path(path).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            raise ValueError("the last line does not end")


# --- the hash inside a file ---------------------------------------------------------------------

SEAL = "seal"
"""The key of the hash in a file's own metadata."""
_MARK = "content-blake2b:"
_DIGITS = 32
UNSEALED = _MARK + _DIGITS * "0"
"""The value that a writer puts there, and `seal` replaces."""


def seal(path: Path) -> None:
    """Puts the hash of a safetensors or Parquet file where its writer has put `UNSEALED`.

    The hash is of all the rest of the file, names and metadata included. (The checksums that
    Parquet has of its own are of the columns' values alone.)
    """
    with path.open("rb+") as file:
        place = _seal_place(file)
        if place is None:
            raise ValueError(f"{path}: there is no place for the hash")
        found = _hash_around(file, place)
        file.seek(place)
        file.write(found)


def check_seal(path: str | Path) -> None:
    """Raises UnreadableArtifact if a file has a hash, and it is that of another content.

    A gigabyte takes about a second, beside the second or more that the disk takes for it.
    """
    with reading(path, Path(path).suffix[1:]), Path(path).open("rb") as file:
        place = _seal_place(file)
        if place is None:
            return  # another program's file
        file.seek(place)
        if file.read(_DIGITS) != _hash_around(file, place):
            raise UnreadableArtifact(path, "is damaged: its content is not what was written")


def _seal_place(file: BinaryIO) -> int | None:
    """Where the digits of the hash are: in safetensors' header, or in Parquet's footer."""
    size = file.seek(0, os.SEEK_END)
    if size < 12:
        return None
    file.seek(-8, os.SEEK_END)
    footer, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic == b"PAR1":
        start, length = size - 8 - footer, footer
    else:
        file.seek(0)
        start, length = 8, int.from_bytes(file.read(8), "little")
    if start < 0 or start + length > size:
        return None  # so damaged that the file's own library will tell
    file.seek(start)
    found = file.read(length).find(_MARK.encode())
    return None if found < 0 else start + found + len(_MARK)


def _hash_around(file: BinaryIO, place: int) -> bytes:
    """The digits of the hash of a file without those at a place, a piece at a time."""
    whole = hashlib.blake2b(digest_size=_DIGITS // 2)
    size = file.seek(0, os.SEEK_END)
    for start, end in ((0, place), (place + _DIGITS, size)):
        file.seek(start)
        while start < end and (part := file.read(min(2**20, end - start))):
            whole.update(part)
            start += len(part)
    return whole.hexdigest().encode()


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
        temporary.unlink()  # a link is made only where there is nothing
        try:
            os.link(Path(source).resolve(), temporary)  # the file, not a link that points to it
        except OSError:
            shutil.copyfile(source, temporary)
