"""Join the measurements of all models, corpora and filters in one table."""

from pathlib import Path
from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts


def main(snakemake: Any) -> None:
    """Concatenate the models' tables, with corpus and model from their paths."""
    parts = []
    for path in snakemake.input.structure:
        corpus, model = Path(path).parts[-3:-1]
        part = artifacts.read_table(path)
        part.insert(0, "corpus", corpus)
        part.insert(1, "model", model)
        parts.append(part)
    artifacts.write_table(snakemake.output[0], pd.concat(parts, ignore_index=True))


job.run(main, globals())
