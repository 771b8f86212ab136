"""Theory against measurement: train at each value of one setting, on the theorems' documents.

Block entries of a trained W_V stand beside Theorem 2, the attention ratio R beside Theorem 3.
"""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.topic import corpora, experiment, measures, sweeps
from scripts.anatomy.topic.settings import GridSettings
from scripts.anatomy.training import RunState


def main(snakemake: Any) -> None:
    """Train and compare every point of the grid, for every seed."""
    torch.set_num_threads(snakemake.threads)
    grid = GridSettings.model_validate(snakemake.params.grid)
    path = Path(snakemake.output.points)
    states = path.parent / ".state"
    rows = []
    with job.compute(snakemake) as compute:
        for number, point in enumerate(sweeps.points(grid)):
            for seed in snakemake.params.seeds:
                rng = seeding.numpy_generator(seed, "corpus")
                corpus = corpora.sample(point.corpus, rng)
                parts = (point.corpus, point.variant)
                fingerprint = job.fingerprint(snakemake.params.code, seed, *map(repr, parts))
                with RunState(states / f"point{number}-seed{seed}", fingerprint) as state:
                    trained = experiment.train(
                        point.variant,
                        corpus,
                        seed=seed,
                        state=state,
                        compute=compute,
                        label=f"{grid.varies} {point.value:g}, {point.measure}, seed {seed}",
                    )
                rng = seeding.numpy_generator(seed, "best ratio")
                view = measures.view_of(trained.model)
                rows += [
                    {"varies": grid.varies, "seed": seed} | row
                    for row in sweeps.compare(point, view, corpus, rng)
                ]
    table = pd.DataFrame(rows)
    artifacts.write_table(path, table)
    artifacts.write_json(snakemake.output.summary, sweeps.errors(table))
    shutil.rmtree(states)


job.run(main, globals())
