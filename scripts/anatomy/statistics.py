"""Intervals of all studies, and nested records as the rows of tables."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtrit  # scipy.stats takes half a second to import


def mean_interval(values: Float[np.ndarray, "seeds"]) -> tuple[float, float, float]:
    """Return the mean and the ends of its 95 % interval by Student's t.

    The ends equal the mean if there is one value, or if a value is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2 or not np.isfinite(values).all():
        return mean, mean, mean
    half = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def proportion_interval(hits: Bool[np.ndarray, "trials"]) -> tuple[float, float, float]:
    """Return the share of hits and the ends of its 95 % interval by Wilson's method."""
    from scipy import stats

    count = int(hits.sum())
    interval = stats.binomtest(count, len(hits)).proportion_ci(method="wilson")
    return count / len(hits), float(interval.low), float(interval.high)


def bootstrap_interval(
    replicates: Float[np.ndarray, "replicates *values"],
) -> Float[np.ndarray, "2 *values"]:
    """Return the ends of the 95 % percentile interval over bootstrap replicates."""
    return np.percentile(replicates, (2.5, 97.5), axis=0)


def standard_error(values: Float[np.ndarray, "n"]) -> float:
    """Return the standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def flatten(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested record, keys joined with dots; lists are left out."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def run_row(path: Path, record: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's row: study, subject, variant and seed of its path, provenance, metrics."""
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
