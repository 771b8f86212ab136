"""Compare the results of two runs bit for bit, except times and memory."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

# Keys and columns that depend on the machine and its load
MEASURED = re.compile(
    "provenance"  # seconds and memory of the job, in every run.json
    "|.*seconds.*|peak_.*memory_mb"  # the same in runs.csv, and times of a step in pretraining
)
# Figures with a panel of times
DRAWN = re.compile(r"pretraining/figures/(cost|curves)\.(png|svg)")


def compared(results: Path) -> dict[str, bytes]:
    """Return what is compared of each result, by its path; temporary files are left out."""
    return {
        str(path.relative_to(results)): bits(path)
        for path in sorted(results.rglob("*"))
        if path.is_file() and not left_out(path.relative_to(results))
    }


def left_out(path: Path) -> bool:
    """Return whether a file is a figure of times, a training's state or Snakemake's."""
    return bool(DRAWN.fullmatch(str(path))) or any(part.startswith(".") for part in path.parts)


def bits(path: Path) -> bytes:
    """Return the content of a file without what depends on the machine."""
    if path.suffix == ".json":
        return json.dumps(without(json.loads(path.read_text("utf-8"))), sort_keys=True).encode()
    if path.suffix == ".csv":
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        return table[[name for name in table if not MEASURED.fullmatch(name)]].to_csv().encode()
    return path.read_bytes()


def without(value: Any) -> Any:
    """Return JSON without the keys in MEASURED."""
    if isinstance(value, dict):
        return {key: without(item) for key, item in value.items() if not MEASURED.fullmatch(key)}
    return [without(item) for item in value] if isinstance(value, list) else value


def assert_like(expected: Mapping[str, bytes], actual: Mapping[str, bytes]) -> None:
    """Assert that no file differs, and name those that do."""
    differ = [
        name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name)
    ]
    assert not differ, sorted(differ)
