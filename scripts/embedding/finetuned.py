"""The accuracies of all seeds of a fine-tuning side by side, for the ledger."""

from collections import defaultdict
from typing import Any

from scripts import job
from scripts.anatomy import artifacts, statistics


def main(snakemake: Any) -> None:
    """Every metric as a list over the seeds."""
    metrics: dict[str, list[float]] = defaultdict(list)
    for path in snakemake.input:
        for name, value in statistics.flatten(artifacts.read_json(path)["metrics"]):
            metrics[name.replace(".", "_")].append(value)
    artifacts.write_json(snakemake.output[0], metrics)


job.run(main, globals())
