"""Which results are those of another run: bit for bit, but for times and memory."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

# What depends on the machine and its load, not on what is computed:
MEASURED = re.compile(
    "provenance"  # seconds and memory of the job, in every run.json
    "|.*seconds.*|peak_.*memory_mb"  # the same in runs.csv, and times of a step in pretraining
)
# pretraining's figures with a panel of times: of what heads cost, and of curves against time
DRAWN = re.compile(r"pretraining/figures/(cost|curves)\.(png|svg)")


def compared(results: Path) -> dict[str, bytes]:
    """What is compared of every file that is under its real name, by that name."""
    return {
        str(path.relative_to(results)): bits(path)
        for path in sorted(results.rglob("*"))
        if path.is_file() and not left_out(path.relative_to(results))
    }


def left_out(path: Path) -> bool:
    """Drawings of times; the state of trainings, temporary files, and Snakemake's own."""
    return bool(DRAWN.fullmatch(str(path))) or any(part.startswith(".") for part in path.parts)


def bits(path: Path) -> bytes:
    """The content of a file, what was measured of the machine left out."""
    if path.suffix == ".json":
        return json.dumps(without(json.loads(path.read_text("utf-8"))), sort_keys=True).encode()
    if path.suffix == ".csv":
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        return table[[name for name in table if not MEASURED.fullmatch(name)]].to_csv().encode()
    return path.read_bytes()


def without(value: Any) -> Any:
    """JSON without the keys in MEASURED."""
    if isinstance(value, dict):
        return {key: without(item) for key, item in value.items() if not MEASURED.fullmatch(key)}
    return [without(item) for item in value] if isinstance(value, list) else value


def assert_like(expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> None:
    """Names the files that differ."""
    differ = [
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    ]
    assert not differ, sorted(differ)
