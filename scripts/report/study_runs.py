"""Write a table of a study with a row per run: settings, provenance and metrics."""

from pathlib import Path
from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, statistics


def main(snakemake: Any) -> None:
    """Gather the records and the metrics of all runs."""
    rows = [
        statistics.run_row(Path(run), artifacts.read_json(run), artifacts.read_json(metrics))
        for run, metrics in zip(snakemake.input.run, snakemake.input.metrics, strict=True)
    ]
    artifacts.write_table(snakemake.output[0], pd.DataFrame(rows))


job.run(main, globals())
