"""Measure structure in W_V and attention for every optimiser and learning rate."""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.topic import corpora, experiment, measures, sweeps
from scripts.anatomy.topic.settings import SweepSettings, TopicMeasurementSettings


def main(snakemake: Any) -> None:
    """Train and measure every cell of the sweep, for every seed."""
    params = snakemake.params
    sweep = SweepSettings.model_validate(params.sweep)
    measurement = TopicMeasurementSettings.model_validate(params.measurement)
    rows = []
    with job.compute(snakemake) as compute, job.parts(snakemake) as part:
        for seed, path in zip(params.seeds, snakemake.input.corpus, strict=True):
            corpus = corpora.load(path)
            for labels, variant in sweeps.sweep_variants(sweep):
                name = "-".join(map(str, labels.values()))
                with part(f"{name}-seed{seed}") as state:
                    trained = experiment.train(
                        variant, corpus, seed=seed, state=state, compute=compute, label=name
                    )
                losses = {"validation_loss": trained.validation_loss}
                measured = sweeps.sweep_row(measures.view_of(trained.model), corpus, measurement)
                rows.append(labels | {"seed": seed} | losses | measured)
        table = pd.DataFrame(rows)
        artifacts.write_table(snakemake.output.points, table)
        artifacts.write_json(snakemake.output.summary, sweeps.worst_cells(table))


job.run(main, globals())
