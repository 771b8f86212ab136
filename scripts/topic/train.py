"""Train one variant on one corpus, for one or several seeds.

Writes the trained weights, log-spaced checkpoints, the loss of every step with the held-out loss
at the checkpoints, and a record of the run. A run that was killed goes on where it was; one that
has finished before with the same parameters, code and data is not trained again.
"""

import os
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.devices import Compute
from scripts.anatomy.topic import corpora, experiment
from scripts.anatomy.topic.settings import TopicVariantSettings
from scripts.anatomy.training import Run, RunState


def main(snakemake: Any) -> None:
    """Train every seed of the job."""
    torch.set_num_threads(snakemake.threads)
    variant = TopicVariantSettings.model_validate(snakemake.params.variant)
    out = snakemake.output
    files = zip(out.weights, out.checkpoints, out.history, out.run, strict=True)
    seeds = zip(snakemake.params.seeds, snakemake.input.corpus, files, strict=True)
    with job.compute(snakemake) as compute:
        for seed, corpus, outputs in seeds:
            _train_seed(snakemake, variant, seed, corpus, [*map(Path, outputs)], compute)


def _train_seed(
    snakemake: Any,
    variant: TopicVariantSettings,
    seed: int,
    corpus: str,
    outputs: list[Path],
    compute: Compute,
) -> None:
    started = time.perf_counter()
    folder = outputs[0].parent
    params = snakemake.params
    fingerprint = job.fingerprint(params.variant, params.code, seed, Path(corpus))
    data = corpora.load(corpus)  # first: a damaged one must not cost a finished run
    with RunState(folder / ".state", fingerprint) as state:
        if state.restore(outputs):
            return
        trained = experiment.train(
            variant,
            data,
            seed=seed,
            state=state,
            compute=compute,
            label=os.path.join(*folder.parts[-3:]),
        )
        weights, checkpoints, history, record = outputs
        artifacts.write_tensors(weights, trained.model.state_dict())
        artifacts.write_tensors(checkpoints, trained.run.checkpoints)
        artifacts.write_table(history, _history(trained.run))
        artifacts.write_json(
            record,
            {
                "params": variant.model_dump(mode="json", exclude={"corpora", "job_per_seed"}),
                "metrics": _losses(trained),
                "provenance": provenance.record(seed=seed, device=compute.device, started=started),
            },
        )
        state.keep(outputs)


def _history(run: Run) -> pd.DataFrame:
    """Training loss before each step, and the held-out loss where it was measured."""
    loss = pd.DataFrame({"step": range(len(run.loss)), "loss": run.loss})
    return loss.merge(pd.DataFrame(run.evaluations), on="step", how="outer")


def _losses(trained: experiment.TrainedTopicModel) -> dict[str, float]:
    """First and last losses; the last training loss is a mean over 100 steps."""
    run = trained.run
    return {
        "first_loss": float(run.loss[0]),
        "last_loss": float(run.loss[-100:].mean()),
        "first_validation_loss": run.evaluations[0]["validation_loss"],
        "last_validation_loss": trained.validation_loss,
    }


job.run(main, globals())
