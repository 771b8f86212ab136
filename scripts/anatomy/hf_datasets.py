"""Stream rows of tables and data sets with the library `datasets`, from inside their folder only.

The library treats the path of a file as a pattern, and the name of a folder as one of its own
readers if they match (`text` reads the whole working directory). The README.md of a folder can
name data anywhere. This module guards against all three.
"""

import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CARD, SETTINGS = "README.md", ".huggingface.yaml"  # files of a folder that describe its data
ELSEWHERE = re.compile(r"(^|[\\/])\.\.($|[\\/])|^[/\\~]|:")


def of_file(kind: str, path: Path) -> Iterator[dict[str, Any]]:
    """Return the rows of a file: `json` (one row a line), `csv` or `parquet`."""
    from datasets import load_dataset  # imported here: it takes seconds, and few corpora need it

    return iter(
        load_dataset(kind, split="train", data_files=glob.escape(str(path)), streaming=True)
    )


def of_set(
    name: str, config: str | None, *, split: str, revision: str | None
) -> Iterator[dict[str, Any]]:
    """Return the rows of a split of a data set on the hub or in a local folder.

    Raises:
        ValueError: A folder's description names data outside of it.
    """
    from datasets import load_dataset

    folder = Path(name)
    if folder.is_dir():
        _check_inside(folder)
        name = str(folder.resolve())
    return iter(load_dataset(name, config, split=split, revision=revision, streaming=True))


def _check_inside(folder: Path) -> None:
    """Raise ValueError if a data set's description names files outside of its folder."""
    from huggingface_hub import DatasetCard

    described = []
    if (folder / CARD).is_file():
        described.append(DatasetCard.load(folder / CARD).data.to_dict())
    if (folder / SETTINGS).is_file():
        described.append(yaml.safe_load((folder / SETTINGS).read_text("utf-8")))
    for path in _data_paths(described):
        if ELSEWHERE.search(path):
            raise ValueError(f"its description names data outside of the folder: {path}")


def _data_paths(value: Any, inside: bool = False) -> Iterator[str]:
    """Yield the strings below the keys `data_files` and `data_dir`."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _data_paths(entry, inside or key in ("data_files", "data_dir"))
    elif isinstance(value, list):
        for entry in value:
            yield from _data_paths(entry, inside)
    elif inside and isinstance(value, str):
        yield value
