"""Train one variant of the LEGO study with one seed: weights, learning curves, a record.

A run that was killed goes on where it was; one that has finished before with the same parameters
and code is not trained again.
"""

import os
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.lego import experiment
from scripts.anatomy.lego.settings import LegoVariantSettings, TaskSettings
from scripts.anatomy.training import Run, RunState


def main(snakemake: Any) -> None:
    """Train, and write the three files."""
    started = time.perf_counter()
    torch.set_num_threads(snakemake.threads)
    params, inp = snakemake.params, snakemake.input
    seed = int(snakemake.wildcards.seed)
    variant = LegoVariantSettings.model_validate(params.variant)
    pretrained = [Path(path) for path in inp]  # the folder and its digest, or nothing
    folder = pretrained[0] if pretrained else None
    outputs = [Path(path) for path in snakemake.output]
    weights, history, record = outputs
    fingerprint = job.fingerprint(
        params.variant, params.task, params.test, params.code, seed, *pretrained[1:]
    )
    blamed = f"variants.{snakemake.wildcards.variant}" if folder else f"tasks.{variant.task}"
    with (
        job.compute(snakemake) as compute,
        RunState(weights.parent / ".state", fingerprint) as state,
    ):
        if state.restore(outputs):
            return
        with job.blaming(f"lego.{blamed}"):
            task = experiment.task_of(variant, TaskSettings.model_validate(params.task), folder)
            model = experiment.build(variant, task, seed, folder)
            test = experiment.test_sentences(variant, task, params.test, seed)
        run = experiment.train(
            model,
            variant,
            task,
            seed=seed,
            state=state,
            test=test,
            compute=compute,
            label=os.path.join(*weights.parent.parts[-2:]),
        )
        artifacts.write_tensors(weights, model.state_dict())
        artifacts.write_table(history, pd.DataFrame(run.evaluations))
        artifacts.write_json(
            record,
            {
                "params": {"variant": dict(params.variant), "task": dict(params.task)},
                "metrics": _metrics(run),
                "provenance": provenance.record(seed=seed, device=compute.device, started=started),
            },
        )
        state.keep(outputs)


def _metrics(run: Run) -> dict[str, float]:
    return {"first_loss": float(run.loss[0]), "last_loss": float(run.loss[-100:].mean())}


job.run(main, globals())
