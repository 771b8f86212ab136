"""Compare two variants: the difference of one metric, seed by seed."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Write the differences, also as shares of the mean difference of a third variant if given."""
    metric, inp = snakemake.params.metric, snakemake.input
    variant, baseline = (
        [_metric(path, metric) for path in paths] for paths in (inp.variant, inp.baseline)
    )
    difference = [value - base for value, base in zip(variant, baseline, strict=True)]
    comparison = {"metric": metric, "difference": difference}
    if inp.normalise_by:
        unit = [
            _metric(path, metric) - base
            for path, base in zip(inp.normalise_by, baseline, strict=True)
        ]
        # by the mean, since the difference of a single seed may be close to 0
        mean = sum(unit) / len(unit)
        comparison["share"] = [gain / mean if mean else float("nan") for gain in difference]
    artifacts.write_json(snakemake.output[0], comparison)


def _metric(path: str, metric: str) -> float:
    """Return a number in a JSON file, its keys joined with dots."""
    value = artifacts.read_json(path)
    for key in metric.split("."):
        value = value[key]
    return float(value)


job.run(main, globals())
