"""Set two variants against each other: the difference of one number, seed by seed."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Subtract, for every seed."""
    metric, inp = snakemake.params.metric, snakemake.input
    difference = [
        _number(one, metric) - _number(other, metric)
        for one, other in zip(inp.of, inp.over, strict=True)
    ]
    artifacts.write_json(snakemake.output[0], {"metric": metric, "difference": difference})


def _number(path: str, metric: str) -> float:
    value = artifacts.read_json(path)
    for key in metric.split("."):
        value = value[key]
    return float(value)


job.run(main, globals())
