"""Set two variants against each other: the difference of one number, seed by seed."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Subtract, for every seed; as a share of a third variant's difference if there is one."""
    metric, inp = snakemake.params.metric, snakemake.input
    of, over = ([_number(path, metric) for path in paths] for paths in (inp.of, inp.over))
    difference = [one - other for one, other in zip(of, over, strict=True)]
    found = {"metric": metric, "difference": difference}
    if snakemake.params.towards:
        whole = [
            _number(path, metric) - other for path, other in zip(inp.towards, over, strict=True)
        ]
        # a share of the mean: where a single seed's whole difference is near 0 it has none
        mean = sum(whole) / len(whole)
        found["share"] = [gain / mean if mean else float("nan") for gain in difference]
    artifacts.write_json(snakemake.output[0], found)


def _number(path: str, metric: str) -> float:
    value = artifacts.read_json(path)
    for key in metric.split("."):
        value = value[key]
    return float(value)


job.run(main, globals())
