"""Optimisers by learning rates: is the structure in W_V and in the attention each time?"""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.topic import corpora, experiment, measures, sweeps
from scripts.anatomy.topic.settings import SweepSettings, TopicMeasurementSettings
from scripts.anatomy.training import RunState


def main(snakemake: Any) -> None:
    """Train and measure every cell of the sweep, for every seed."""
    torch.set_num_threads(snakemake.threads)
    params = snakemake.params
    sweep = SweepSettings.model_validate(params.sweep)
    measurement = TopicMeasurementSettings.model_validate(params.measurement)
    path = Path(snakemake.output.points)
    states = path.parent / ".state"
    rows = []
    with job.compute(snakemake) as compute:
        for seed, corpus_path in zip(params.seeds, snakemake.input.corpus, strict=True):
            corpus = corpora.load(corpus_path)
            for labels, variant in sweeps.sweep_variants(sweep):
                name = "-".join(map(str, labels.values()))
                fingerprint = job.fingerprint(params.code, seed, Path(corpus_path), repr(variant))
                with RunState(states / f"{name}-seed{seed}", fingerprint) as state:
                    trained = experiment.train(
                        variant, corpus, seed=seed, state=state, compute=compute, label=name
                    )
                losses = {"validation_loss": trained.validation_loss}
                found = sweeps.sweep_row(measures.view_of(trained.model), corpus, measurement)
                rows.append(labels | {"seed": seed} | losses | found)
    table = pd.DataFrame(rows)
    artifacts.write_table(path, table)
    artifacts.write_json(snakemake.output.summary, sweeps.worst_cells(table))
    shutil.rmtree(states)


job.run(main, globals())
