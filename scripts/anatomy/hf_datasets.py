"""Rows of tables and data sets as the library `datasets` streams them, and from nowhere else.

The library takes the path of a file for a pattern, and the path of a folder for a name of its own
if there is one (`text`, which reads all that is in the working directory). A folder can say in its
README.md where its data are, which may be anywhere.
"""

import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CARD, SETTINGS = "README.md", ".huggingface.yaml"  # where a folder says what its data are
ELSEWHERE = re.compile(r"(^|[\\/])\.\.($|[\\/])|^[/\\~]|:")


def of_file(kind: str, path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file: `json` (a row a line), `csv` or `parquet`."""
    from datasets import load_dataset  # here, since it takes seconds, and few corpora need it

    return iter(
        load_dataset(kind, split="train", data_files=glob.escape(str(path)), streaming=True)
    )


def of_set(
    name: str, config: str | None, *, split: str, revision: str | None
) -> Iterator[dict[str, Any]]:
    """The rows of a split of a data set on the hub, or in a local folder.

    Raises ValueError for a folder whose data are elsewhere.
    """
    from datasets import load_dataset

    folder = Path(name)
    if folder.is_dir():
        _check_inside(folder)
        name = str(folder.resolve())
    return iter(load_dataset(name, config, split=split, revision=revision, streaming=True))


def _check_inside(folder: Path) -> None:
    """Raise ValueError if a data set's own description names files that are not in its folder."""
    from huggingface_hub import DatasetCard

    described = []
    if (folder / CARD).is_file():
        described.append(DatasetCard.load(folder / CARD).data.to_dict())
    if (folder / SETTINGS).is_file():
        described.append(yaml.safe_load((folder / SETTINGS).read_text("utf-8")))
    for place in _places(described):
        if ELSEWHERE.search(place):
            raise ValueError(f"its description names data outside of the folder: {place}")


def _places(value: Any, inside: bool = False) -> Iterator[str]:
    """The texts below the keys that say where data are."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _places(entry, inside or key in ("data_files", "data_dir"))
    elif isinstance(value, list):
        for entry in value:
            yield from _places(entry, inside)
    elif inside and isinstance(value, str):
        yield value
