"""Files that are complete or absent: atomic writes, and reads that name what is wrong with a file.

A write goes to a temporary name in the same folder, which is then renamed. So a killed job or a
full disk never leaves half a file under the real name. A disk that is full or read-only raises
`UnwritableArtifact`; reading a missing, empty, truncated or foreign file raises
`UnreadableArtifact`. pandas, pyarrow and torch are imported only by the functions that need them.

Tensors and Parquet tables carry a checksum of their contents, so a single flipped bit is detected.
JSON and CSV carry none: you may edit them, and a change that leaves valid text looks like an edit.
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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from filelock import FileLock, Timeout

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import torch


logger = logging.getLogger(__name__)

# Errors that only a write can meet: full disk, quota, size limit, read-only, file system without
# locks
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENOLCK}


class _FileError(Exception):
    """An error about one file. Attributes: path, reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class UnreadableArtifact(_FileError, ValueError):
    """A file is missing or damaged, or has another format than its name implies."""


class UnwritableArtifact(_FileError, RuntimeError):
    """A file cannot be written because of its disk or folder, whatever the input."""

    def __str__(self) -> str:
        return f"{self.path}: cannot be written: {self.reason}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's type if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def writable(path: str | Path, temporary: Path | None = None) -> Iterator[None]:
    """Raise UnwritableArtifact where `path`, or `temporary` in its place, cannot be written.

    Other errors pass unchanged, since the block may also read files.
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
    """Hold the lock file `path`; log `waiting` if another process has it.

    Raises UnwritableArtifact if the file or its folder cannot be made.
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
    """Return why `path` cannot be written, or None if the error has another cause."""
    rust_error = re.search(r"\(os error (\d+)\)", str(error))  # from safetensors and tokenizers
    number = error.errno if isinstance(error, OSError) else rust_error and int(rust_error[1])
    if number is None:
        return None
    name = getattr(error, "filename", None)
    cause = Path(os.fsdecode(name)) if isinstance(name, str | bytes | os.PathLike) else None
    if cause in path.parents:
        return f"{cause}: {os.strerror(number)}"
    ours = cause is not None and any(cause.is_relative_to(own) for own in (path, temporary))
    return os.strerror(number) if ours or number in UNWRITABLE else None


@contextmanager
def writing(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces `path` when the block ends.

    The temporary name keeps the suffix, for writers that derive the format from it. If the block
    raises or the disk is full, the temporary file is removed and an older `path` stays. A `durable`
    file is flushed to the disk before the rename and survives a power cut; this takes a tenth of a
    second, so only states of trainings use it.
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
            if temporary.stat().st_nlink == 1:  # a hard link shares its permissions with its source
                temporary.chmod(0o666 & ~_umask())  # safetensors' files only the owner can read
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the first error gives the reason
            temporary.unlink(missing_ok=True)


@contextmanager
def writing_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, which replaces `path` when the block ends."""
    path = Path(path)
    temporary = _temporary(path)
    old = temporary.with_suffix(".old")
    try:
        with writable(path, temporary):
            temporary.mkdir(parents=True)
            yield temporary
            if path.exists():
                path.rename(old)  # not removed in place: a kill would leave half a folder
            temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Return an unused name beside `path`."""
    return path.with_name(f".{secrets.token_hex(4)}.tmp.{path.name}")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed writers from a folder and its subfolders.

    Call it only if no other process writes there.
    """
    for path in folder.rglob(".*.tmp.*"):
        with writable(folder):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _umask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def reading(path: str | Path, kind: str) -> Iterator[None]:
    """Raise UnreadableArtifact, with one line, whatever goes wrong in reading `path` as `kind`."""
    path = Path(path)
    if not path.is_file():
        raise UnreadableArtifact(path, "is not a file" if path.exists() else "is missing")
    if path.stat().st_size == 0:
        raise UnreadableArtifact(path, "is empty")
    try:
        yield
    except (UnreadableArtifact, MemoryError, ImportError):
        raise
    except Exception as error:  # each library raises its own types
        reason = f"is not readable as {kind}, it may be cut off ({first_line(error)})"
        raise UnreadableArtifact(path, reason) from error


# --- JSON ---------------------------------------------------------------------------------------


def write_json(path: str | Path, value: Mapping[Any, Any] | list[Any]) -> None:
    """Write a mapping or a list as JSON with sorted keys.

    Arrays and numbers of numpy and torch become lists and numbers. NaN and infinities, which JSON
    does not have, become null: a metric that could not be computed reads back as None.
    """
    text = json.dumps(_plain(value), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    with writing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return the value in JSON's own types; `json.dumps` refuses what is left of other types."""
    if hasattr(value, "tolist"):  # numpy and torch, arrays and scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: str | Path) -> Any:
    """Return the mapping or list in a JSON file.

    A bare number or word is refused, since a truncated one is still valid JSON.
    """
    with reading(path, "JSON"):
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(value, dict | list):
            raise ValueError(f"holds a bare {type(value).__name__}")
    return value


# --- checksums ----------------------------------------------------------------------------------


def checksum(value: Any) -> str:
    """Return a hash (32 hexadecimal digits) of a value that JSON can hold, whatever its order."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def verify(path: str | Path, expected: str, actual: str) -> None:
    """Raise UnreadableArtifact if two checksums of a file's contents differ."""
    if actual != expected:
        raise UnreadableArtifact(path, "is damaged: its contents do not match its checksum")


# --- tensors ------------------------------------------------------------------------------------

METADATA = "artifact"
"""The only key in a safetensors file's own metadata. Its value is JSON: checksum and metadata.

With several keys equal contents would not give equal bytes: the library's order is random.
"""


def write_tensors(
    path: str | Path,
    tensors: Mapping[str, np.ndarray | torch.Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Write named arrays as safetensors, with a checksum; equal contents give equal bytes.

    Tensors may be on any device, have any strides and share storage (tied weights); each is written
    in full. torch is imported only if one of the values is a torch tensor.
    """
    if all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        from safetensors.numpy import save_file

        # `ascontiguousarray` would give a scalar a dimension.
        plain = {
            name: np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
            for name, array in tensors.items()
        }
    else:
        from safetensors.torch import save_file

        plain = {name: _own_copy(tensor) for name, tensor in tensors.items()}
    metadata = dict(metadata or {})
    header = {"checksum": _checksum_of_tensors(plain.items(), metadata), "metadata": metadata}
    with writing(path, durable=durable) as temporary:
        save_file(plain, temporary, {METADATA: json.dumps(header, sort_keys=True)})


def _own_copy(tensor: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Return a contiguous CPU tensor with storage of its own."""
    import torch

    return torch.as_tensor(tensor).detach().to("cpu", copy=True).contiguous()


def _checksum_of_tensors(
    tensors: Iterable[tuple[str, np.ndarray | torch.Tensor]], metadata: Mapping[str, str]
) -> str:
    """Return the checksum of names, types, shapes, values and metadata, whatever the order."""
    parts = {}
    for name, tensor in tensors:
        flat = tensor.reshape(-1)
        if isinstance(flat, np.ndarray):
            content = flat.view(np.uint8)
        else:
            import torch

            content = flat.view(torch.uint8).numpy()
        dtype = str(tensor.dtype).removeprefix("torch.")
        values = hashlib.blake2b(content, digest_size=16).hexdigest()
        parts[name] = [dtype, [*tensor.shape], values]
    return checksum([parts, metadata])


def read_tensors(
    path: str | Path, *, framework: Literal["numpy", "torch"] = "numpy"
) -> dict[str, Any]:
    """Return the named arrays of a safetensors file, as numpy arrays or as torch CPU tensors.

    A file that `write_tensors` wrote is checked against its checksum. numpy has no bfloat16: read
    such a file with torch.
    """
    if framework == "torch":
        from safetensors.torch import load_file
    else:
        from safetensors.numpy import load_file
    with reading(path, "safetensors"):
        tensors = load_file(path)
        _verify_tensors(path, tensors.items())
    return tensors


def check_tensors(path: str | Path) -> None:
    """Raise UnreadableArtifact if a safetensors file does not match its checksum.

    Holds one tensor in memory at a time.
    """
    from safetensors import safe_open

    with reading(path, "safetensors"), safe_open(path, framework="pt") as file:
        _verify_tensors(path, ((name, file.get_tensor(name)) for name in file.keys()))


def _verify_tensors(path: str | Path, tensors: Iterable[tuple[str, Any]]) -> None:
    """Compare tensors with the checksum in their file; a file of another program has none."""
    if header := _header(path):
        verify(path, header["checksum"], _checksum_of_tensors(tensors, header["metadata"]))


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata that was given to `write_tensors`.

    The arrays are not read, and the checksum is not verified. Raises UnreadableArtifact for a file
    of another program.
    """
    with reading(path, "safetensors"):
        if not (header := _header(path)):
            raise ValueError(f"the header has no {METADATA}")
        return header["metadata"]


def _header(path: str | Path) -> dict[str, Any]:
    """Return what `write_tensors` adds to a file; an empty mapping for another program's file."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return json.loads((file.metadata() or {}).get(METADATA, "{}"))


# --- tables -------------------------------------------------------------------------------------

CHECKSUM = b"checksum"
"""The key of the checksum in the metadata of a Parquet file."""


def write_table(path: str | Path, table: pandas.DataFrame) -> None:
    """Write a data frame without its index, as `.csv`, or as `.parquet` with a checksum.

    Raises ValueError for another suffix.
    """
    suffix = _suffix(path)
    with writing(path) as temporary:
        if suffix == ".csv":
            table.to_csv(temporary, index=False, lineterminator="\n")
            return
        import pyarrow
        import pyarrow.parquet

        columns = pyarrow.Table.from_pandas(table, preserve_index=False)
        metadata = {**columns.schema.metadata, CHECKSUM: _checksum_of_table(columns)}
        pyarrow.parquet.write_table(columns.replace_schema_metadata(metadata), temporary)


def read_table(path: str | Path) -> pandas.DataFrame:
    """Return the data frame in a `.csv` or `.parquet` file.

    In a CSV only an empty field is a missing value: "null" and "NA" are words. Its last line must
    end in a newline, so a file cut inside a line is refused; one cut between two lines is not
    noticed.
    """
    suffix = _suffix(path)
    if suffix == ".parquet":
        columns = read_parquet(path)
        with reading(path, "parquet"):
            return columns.to_pandas()
    import pandas

    with reading(path, "csv"):
        check_last_line(path)
        return pandas.read_csv(path, keep_default_na=False, na_values=[""], lineterminator="\n")


def read_parquet(path: str | Path) -> pyarrow.Table:
    """Return the Arrow table in a Parquet file, checked against its checksum if it has one."""
    import pyarrow.parquet

    with reading(path, "parquet"), pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
        if expected := (table.schema.metadata or {}).get(CHECKSUM):
            verify(path, expected.decode(), _checksum_of_table(table))
    return table


def _checksum_of_table(table: pyarrow.Table) -> str:
    """Return the checksum of names, types, values and all other metadata."""
    columns = [*zip(table.column_names, map(checksum_of_column, table), strict=True)]
    metadata = table.schema.metadata or {}
    others = {repr(key): repr(value) for key, value in metadata.items() if key != CHECKSUM}
    return checksum([columns, others])


def checksum_of_column(column: pyarrow.ChunkedArray) -> str:
    """Return the checksum of an Arrow column's type and values, however they are laid out.

    Types are numbers, booleans, texts, and lists of these; others raise TypeError.
    """
    whole = hashlib.blake2b(digest_size=16)
    _hash_array(whole, column.combine_chunks())
    return whole.hexdigest()


def _hash_array(whole: Any, values: pyarrow.Array) -> None:
    """Add an array to a hash. The memory under missing values is undefined and left out."""
    import pyarrow
    from pyarrow import compute, types

    missing, kind = values.is_null(), values.type
    _hash_numbers(whole, missing)
    values = values.drop_null()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        _hash_numbers(whole, compute.list_value_length(values))
        _hash_array(whole, values.flatten())
        return
    whole.update(str(kind).encode())
    if types.is_string(kind) or types.is_large_string(kind):
        _hash_numbers(whole, compute.binary_length(values))
        texts = pyarrow.ListArray.from_arrays([0, len(values)], values)
        whole.update(compute.binary_join(texts, pyarrow.scalar("", kind))[0].as_buffer())
    elif types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        _hash_numbers(whole, values)
    elif not types.is_null(kind):
        raise TypeError(f"a column of type {kind} has no checksum")


def _hash_numbers(whole: Any, values: pyarrow.Array) -> None:
    """Add numbers or booleans without missing values to a hash."""
    if values.type == "bool":
        values = values.cast("uint8")
    whole.update(np.from_dlpack(values).view(np.uint8))  # `to_numpy` would import pandas


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path}: expected a table with the suffix .csv or .parquet")
    return suffix


def check_last_line(path: str | Path) -> None:
    """Raise ValueError if a text file that is not empty was cut off inside a line."""
    with Path(path).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            raise ValueError("the last line does not end")


# --- whole files --------------------------------------------------------------------------------


def digest(paths: str | Path | Iterable[str | Path]) -> str:
    """Return a hash of the contents of one file, or of several in this order, whatever the names.

    Raises UnreadableArtifact if one is missing.
    """
    whole = hashlib.blake2b(digest_size=16)
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if not Path(path).is_file():
            raise UnreadableArtifact(path, "is missing")
        with Path(path).open("rb") as file:  # hashed file by file, so that boundaries count
            whole.update(hashlib.file_digest(file, hashlib.blake2b).digest())
    return whole.hexdigest()


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make `target` a hard link to `source`, or a copy if they are on different file systems.

    A link shares its modification time with `source`. An older `target` is replaced atomically.
    """
    if not Path(source).is_file():
        raise UnreadableArtifact(source, "is missing")
    with writing(target) as temporary:
        temporary.unlink()  # a link can only be made under an unused name
        try:
            os.link(Path(source).resolve(), temporary)  # of the file that a symbolic link points to
        except OSError:
            shutil.copyfile(source, temporary)
