"""Tables over runs: nested records as tidy rows, means with intervals over seeds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit  # scipy.stats takes half a second to import


def flatten(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested record, keys joined with dots; lists are left out."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def run_row(path: Path, record: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A run's row: study, subject, variant, seed (from its path), provenance, params, metrics."""
    study, subject, variant, seed = path.parts[-5:-1]
    return {
        "study": study,
        "subject": subject,
        "variant": variant,
        "seed": int(seed.removeprefix("seed")),
        **{k: v for k, v in record["provenance"].items() if k != "seed"},
        **dict(flatten(record["params"], "params.")),
        **dict(flatten(metrics, "metrics.")),
    }


def interval(values: Float[np.ndarray, "seeds"]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval by Student's t; equal when all values are."""
    values = np.asarray(values, dtype=np.float64)
    mean, n = float(values.mean()), len(values)
    if n < 2 or not np.isfinite(values).all():
        return mean, mean, mean
    half = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
