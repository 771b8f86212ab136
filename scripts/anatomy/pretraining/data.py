"""Text as rows of tokens: documents one after the other, cut into rows of one length.

A row is [CLS], length - 2 tokens of the stream, [SEP]; in the stream [SEP] separates documents.
There is no padding, and only the tail that fills no row is dropped. Rows are stored as .npy files
of the smallest integers that hold the vocabulary. They are memory-mapped, so that a corpus of any
size needs no more memory than the rows in use.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int64, Integer
from tokenizers import Tokenizer

from scripts.anatomy import artifacts, seeding
from scripts.anatomy.artifacts import UnreadableArtifact
from scripts.anatomy.pretraining import masking
from scripts.anatomy.pretraining.masking import Masked
from scripts.anatomy.pretraining.settings import PretrainingMaskingSettings
from scripts.anatomy.pretraining.tokenizer import Special

DOCUMENTS_PER_CHUNK = 1000
ROWS_PER_CHUNK = 100_000  # whose tokens are counted together
ROWS_PER_BATCH = 64  # of the validation rows


def encoded(documents: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the ids of every document, without special tokens."""
    stream = iter(documents)
    while part := list(islice(stream, DOCUMENTS_PER_CHUNK)):
        for encoding in tokenizer.encode_batch(part, add_special_tokens=False):
            yield encoding.ids


def split(share: float) -> Iterator[bool]:
    """Yield whether document 0, 1, 2, ... is for validation, the same for all seeds."""
    rng = seeding.numpy_generator(0, "held-out documents")
    while True:
        yield bool(rng.random() < share)


class Packer:
    """Packs documents into the rows of an .npy file, which is complete after `close`.

    Args:
        file: The file, open for binary writing.
        length: Tokens in a row, [CLS] and [SEP] included.
        d_vocab: Ids are below this.
        special: Ids of the special tokens.
    """

    def __init__(self, file: BinaryIO, *, length: int, d_vocab: int, special: Special) -> None:
        self.length, self.special = length, special
        self.dtype = np.dtype(np.uint16 if d_vocab <= 2**16 else np.uint32)
        self.documents = self.rows = 0
        self._file, self._rest = file, []
        self._write_header()

    def add(self, ids: list[int]) -> None:
        """Append a document and write the rows that it fills."""
        self._rest += [self.special.sep, *ids] if self.documents else ids
        self.documents += 1
        inside = self.length - 2
        count = len(self._rest) // inside
        rows = np.empty((count, self.length), self.dtype)
        rows[:, 0], rows[:, -1] = self.special.cls, self.special.sep
        rows[:, 1:-1] = np.reshape(self._rest[: count * inside], (count, inside))
        self._file.write(rows.tobytes())
        self.rows += count
        del self._rest[: count * inside]

    def close(self) -> None:
        """Write the number of rows; tokens that do not fill a row are dropped."""
        self._file.seek(0)
        self._write_header()  # numpy leaves room in the header for a larger number of rows

    def _write_header(self) -> None:
        descr = np.lib.format.dtype_to_descr(self.dtype)
        shape = (self.rows, self.length)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def read(path: Path) -> Integer[np.ndarray, "rows length"]:
    """Return the rows of a file, memory-mapped.

    Raises:
        UnreadableArtifact: The file is missing or truncated.
    """
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        reason = "is missing" if not path.exists() else f"is not readable as .npy ({error})"
        raise UnreadableArtifact(path, reason) from error


@dataclass(frozen=True)
class Text:
    """Packed text with its vocabulary and masking.

    Attributes:
        train: Rows to train on.
        validation: Rows to measure the loss on.
        d_vocab: Rows of the embedding.
        d_tokens: Tokens of the tokenizer, at most d_vocab.
        special: Ids of the special tokens.
        masking: Probabilities of masking.
    """

    train: Integer[np.ndarray, "rows length"]
    validation: Integer[np.ndarray, "validation_rows length"]
    d_vocab: int
    d_tokens: int
    special: Special
    masking: PretrainingMaskingSettings

    @cached_property
    def _ordinary(self) -> Integer[np.ndarray, "ordinary"]:
        return masking.ordinary(self.d_tokens, self.special)

    def masked(
        self, tokens: Integer[np.ndarray, "rows length"], seed: int, *purpose: str | int
    ) -> Masked:
        """Return rows with masks that depend on a seed and a purpose only."""
        return masking.mask(
            tokens,
            self.masking,
            candidates=self._ordinary,
            special=self.special,
            rng=seeding.numpy_generator(seed, *purpose),
        )


def load(files: Any, masking: PretrainingMaskingSettings) -> Text:
    """Return packed text from the rows in files.train and files.validation, and files.info.

    Raises:
        UnreadableArtifact: A file is missing or damaged.
    """
    info = artifacts.read_json(files.info)
    train, validation = read(Path(files.train)), read(Path(files.validation))
    for part in ("train", "validation"):
        if artifacts.digest(path := getattr(files, part)) != info.get("digests", {}).get(part):
            reason = f"is damaged: its digest is not the one in {files.info}"
            raise UnreadableArtifact(path, reason)
    special = Special(**info["special"])
    return Text(train, validation, info["d_vocab"], info["d_tokens"], special, masking)


def rows_of_step(
    rows: Integer[np.ndarray, "rows length"], *, batch: int, seed: int
) -> Callable[[int], Integer[np.ndarray, "batch length"]]:
    """Return the rows of every step, a function of (seed, step); each epoch has a new order."""
    per_epoch = len(rows) // batch
    orders: dict[int, Int64[np.ndarray, "rows"]] = {}

    def at(step: int) -> Integer[np.ndarray, "batch length"]:
        epoch, index = divmod(step, per_epoch)
        if epoch not in orders:
            orders.clear()
            orders[epoch] = seeding.numpy_generator(seed, "order", epoch).permutation(len(rows))
        return rows[orders[epoch][index * batch : (index + 1) * batch]]

    return at


def check_batch(text: Text, batch: int) -> None:
    """Raise ValueError if there are fewer training rows than a batch has."""
    if len(text.train) < batch:
        raise ValueError(f"expected at most the {len(text.train)} training rows, got {batch}")


def counts(rows: Integer[np.ndarray, "rows length"], d_vocab: int) -> Int64[np.ndarray, "d_vocab"]:
    """Return how often each token occurs."""
    parts = range(0, len(rows), ROWS_PER_CHUNK)
    return sum(
        np.bincount(rows[part : part + ROWS_PER_CHUNK].ravel(), minlength=d_vocab) for part in parts
    )


def validation_batches(text: Text, max_rows: int) -> list[Masked]:
    """Return at most `max_rows` validation rows in batches, with the same masks for every model."""
    order = seeding.numpy_generator(0, "held-out rows").permutation(len(text.validation))
    chosen = order[:max_rows]
    rows = text.validation[np.sort(chosen)]
    return [
        text.masked(rows[start : start + ROWS_PER_BATCH], 0, "held-out masks", start)
        for start in range(0, len(rows), ROWS_PER_BATCH)
    ]
