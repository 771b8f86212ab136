"""Train at each value of one setting, on the theorems' documents, and compare with the theory.

Block entries of a trained W_V are compared with Theorem 2, the attention ratio R with Theorem 3.
"""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.topic import corpora, experiment, measures, sweeps
from scripts.anatomy.topic.settings import GridSettings


def main(snakemake: Any) -> None:
    """Train and compare every point of the grid, for every seed."""
    grid = GridSettings.model_validate(snakemake.params.grid)
    rows = []
    with job.compute(snakemake) as compute, job.parts(snakemake) as part:
        for number, point in enumerate(sweeps.points(grid)):
            for seed in snakemake.params.seeds:
                corpus = corpora.sample(point.corpus, seeding.numpy_generator(seed, "corpus"))
                with part(f"point{number}-seed{seed}") as state:
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
        artifacts.write_table(snakemake.output.points, table)
        artifacts.write_json(snakemake.output.summary, sweeps.errors(table))


job.run(main, globals())
