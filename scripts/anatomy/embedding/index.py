"""The top tokens of every parameter vector of a model, in one Parquet file.

What is read in vocabulary space (similar pairs, overlap with hidden states, search) becomes work on
sets of token ids, without the model. The file has one row group for each layer and group of
vectors, so that readers take only what they need. This module and its readers do without torch.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Integer

from scripts.anatomy import artifacts

LISTS = ("ids_high", "scores_high", "ids_low", "scores_low")
FORMAT = {  # scores do not compress, and read fastest as they are
    "compression": {f"{name}.list.element": "zstd" for name in ("ids_high", "ids_low")},
    "use_dictionary": ["group"],
    "write_statistics": ["layer", "group"],  # by which other programs find a row group
}

CONTENTS, CHECKSUM = b"contents", b"contents_checksum"
"""Keys of the file's metadata: JSON with the checksum of each column; the checksum of that JSON."""


@dataclass(frozen=True)
class TopLists:
    """The top tokens of a group of vectors w of one layer.

    Attributes:
        head: Query or key head of each vector; -1 in the feed-forward block.
        index: Its number within the head, or within the feed-forward block.
        norm: Its length.
        ids_high: Tokens with the largest w E, largest first.
        scores_high: Their w E.
        ids_low: Tokens with the largest -w E, largest first.
        scores_low: Their -w E.
    """

    head: Integer[np.ndarray, "vectors"]
    index: Integer[np.ndarray, "vectors"]
    norm: Float[np.ndarray, "vectors"]
    ids_high: Integer[np.ndarray, "vectors k"]
    scores_high: Float[np.ndarray, "vectors k"]
    ids_low: Integer[np.ndarray, "vectors k"]
    scores_low: Float[np.ndarray, "vectors k"]


def largest(lists: TopLists, k: int | None = None) -> Integer[np.ndarray, "vectors k"]:
    """Return the k tokens whose |w E| is largest, largest first; as many as a list has by default.

    Where absolute values are equal, positive ones are first.
    """
    ids = np.concatenate([lists.ids_high, lists.ids_low], axis=1)
    scores = np.concatenate([lists.scores_high, lists.scores_low], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : check_k(lists, k)]
    return np.take_along_axis(ids, order, axis=1)


def check_k(lists: TopLists, k: int | None) -> int:
    """Return the number of tokens wanted, all in a list if None; ValueError if a list has fewer."""
    held = lists.ids_high.shape[1]
    if k is not None and not 1 <= k <= held:
        raise ValueError(f"k = {k}: the index holds the {held} top tokens of each vector")
    return k or held


def rows_by_query_head(lists: TopLists, n: int) -> Integer[np.ndarray, "n"]:
    """Return the row of a group that belongs to each of n vectors ordered by query head and number.

    That is the same row, but where neighbouring query heads share a key head: there each of them
    has that head's. Feed-forward vectors are as those of one head.
    """
    d_head = int(lists.index.max()) + 1
    heads = np.arange(n // d_head) * len(lists.head) // n
    return (heads[:, None] * d_head + np.arange(d_head)).ravel()


# --- the file -----------------------------------------------------------------------------------


def write_index(
    path: str | Path, blocks: Iterable[tuple[int, str, TopLists]], *, d_vocab: int
) -> None:
    """Writes (layer, group, lists) as row groups, one after the other as they come.

    Ids take 16 bits where the vocabulary lets them. Scores keep 32, so that the order by absolute
    value that `largest` derives is exact.
    """
    blocks = iter(blocks)
    first = next(blocks)
    top = first[2].ids_high.shape[1]
    schema = _schema(top, d_vocab)
    checksums = []
    with artifacts.writing(path) as temporary:
        with pq.ParquetWriter(temporary, schema, **FORMAT) as writer:
            for layer, group, lists in chain([first], blocks):
                table = _table(layer, group, lists, schema)
                writer.write_table(table, row_group_size=len(table))
                columns = map(artifacts.checksum_of_column, table)
                columns = dict(zip(table.column_names, columns, strict=True))
                checksums.append([layer, group, columns])
            contents = json.dumps({"d_vocab": d_vocab, "top": top, "row_groups": checksums})
            writer.add_key_value_metadata(
                {CONTENTS: contents, CHECKSUM: artifacts.checksum(contents)}
            )


def _schema(k: int, d_vocab: int) -> pa.Schema:
    ids = pa.list_(pa.uint16() if d_vocab <= 2**16 else pa.int32(), k)
    scores = pa.list_(pa.float32(), k)
    return pa.schema(
        {
            "layer": pa.int16(),
            "group": pa.string(),
            "head": pa.int16(),
            "index": pa.int32(),
            "norm": pa.float32(),
            "ids_high": ids,
            "scores_high": scores,
            "ids_low": ids,
            "scores_low": scores,
        }
    )


def _table(layer: int, group: str, lists: TopLists, schema: pa.Schema) -> pa.Table:
    n = len(lists.head)
    columns = [pa.array(np.full(n, layer), pa.int16()), pa.array([group] * n)]
    for field in list(schema)[2:]:
        values = getattr(lists, field.name)
        if values.ndim == 1:
            columns.append(pa.array(values, field.type))
        else:
            flat = pa.array(values.ravel(), field.type.value_type)
            columns.append(pa.FixedSizeListArray.from_arrays(flat, values.shape[1]))
    return pa.table(columns, schema=schema)


class Index:
    """An index file that is open for reading. Each column is verified when it is read.

    Attributes:
        groups: Row group number by (layer, group), in the order of the file.
        layers: Its layers.
        top: How many tokens each list has.
        d_vocab: Size of the vocabulary, which ids are below.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with artifacts.reading(self.path, "an index of top tokens"):
            self._file = pq.ParquetFile(self.path, memory_map=True)
            metadata = self._file.metadata.metadata
            expected = metadata[CHECKSUM].decode()
            artifacts.verify(path, expected, artifacts.checksum(metadata[CONTENTS].decode()))
            contents = json.loads(metadata[CONTENTS])
        self.d_vocab, self.top = contents["d_vocab"], contents["top"]
        self._checksums = [columns for *_, columns in contents["row_groups"]]
        keys = [(layer, group) for layer, group, _ in contents["row_groups"]]
        self.groups = {key: number for number, key in enumerate(keys)}
        self.layers = list(dict.fromkeys(layer for layer, _ in keys))

    def read(self, layer: int, group: str) -> TopLists:
        """Return the lists of one group of one layer; ValueError if the file has none."""
        return TopLists(**self.columns(layer, group, [f.name for f in fields(TopLists)]))

    def layer(self, layer: int) -> dict[str, TopLists]:
        """Return the lists of all groups of one layer."""
        return {group: self.read(at, group) for at, group in self.groups if at == layer}

    def columns(self, layer: int, group: str, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Some of the columns of one group of one layer."""
        if (layer, group) not in self.groups:
            held = ", ".join(dict.fromkeys(name for _, name in self.groups))
            raise ValueError(f"{self.path}: no vectors {group} in layer {layer}; it has {held}")
        number = self.groups[layer, group]
        with artifacts.reading(self.path, "an index of top tokens"):
            table = self._file.read_row_group(number, columns=list(names))
            for name, expected in self._checksums[number].items():
                if name in names:
                    actual = artifacts.checksum_of_column(table[name])
                    artifacts.verify(self.path, expected, actual)
            return {name: _array(table[name].combine_chunks()) for name in names}


def _array(column: pa.Array) -> np.ndarray:
    """Return a column as an array, lists as rows; unlike `to_numpy`, it does not import pandas."""
    if pa.types.is_fixed_size_list(column.type):
        return np.from_dlpack(column.flatten()).reshape(len(column), -1)
    return np.from_dlpack(column)
