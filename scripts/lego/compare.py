"""Set variants against each other: the difference of one number, seed by seed."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.lego.settings import Comparison


def main(snakemake: Any) -> None:
    """One list a comparison."""
    inp, found = snakemake.input, {}
    for name, settings in snakemake.params.comparisons.items():
        metric = Comparison.model_validate(settings).metric
        found[name] = [
            _number(one, metric) - _number(other, metric)
            for one, other in zip(inp[f"{name}_of"], inp[f"{name}_over"], strict=True)
        ]
    artifacts.write_json(snakemake.output[0], found)


def _number(path: str, metric: str) -> float:
    value = artifacts.read_json(path)
    for key in metric.split("."):
        value = value[key]
    return float(value)


job.run(main, globals())
