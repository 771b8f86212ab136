"""results/runs.csv: the runs of all studies, one tidy row each."""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Put the studies' tables under each other."""
    tables = [artifacts.read_table(path) for path in snakemake.input]
    artifacts.write_table(snakemake.output[0], pd.concat(tables, ignore_index=True))


job.run(main, globals())
