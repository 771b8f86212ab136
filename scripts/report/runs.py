"""Write results/runs.csv with a row per run of all studies."""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Concatenate the tables of the studies."""
    tables = [artifacts.read_table(path) for path in snakemake.input]
    artifacts.write_table(snakemake.output[0], pd.concat(tables, ignore_index=True))


job.run(main, globals())
