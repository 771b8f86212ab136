"""Pretrain one variant with one seed: weights, checkpoints, learning curves, a record.

A run that was killed goes on where it was; one that has finished before with the same parameters,
code and data is not trained again.
"""

import itertools
import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import BertForMaskedLM

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.pretraining import data, experiment
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.settings import (
    EvaluationSettings,
    OptimisationSettings,
    PretrainingMaskingSettings,
    PretrainingVariantSettings,
    SizeSettings,
)
from scripts.anatomy.training import Run, RunState


def main(snakemake: Any) -> None:
    """Train, and write what is left."""
    started = time.perf_counter()
    torch.set_num_threads(snakemake.threads)
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    seed = int(snakemake.wildcards.seed)
    text = data.load(inp, PretrainingMaskingSettings.model_validate(params.masking))
    with job.blaming("pretraining.optimisation.batch"):
        data.check_batch(text, params.optimisation["batch"])
    given = {name: value for name, value in params.items() if name != "code"}
    fingerprint = job.fingerprint(given, params.code, seed, *map(Path, inp))
    outputs, folder = [Path(path) for path in out], Path(out.run).parent
    with (
        job.compute(snakemake) as compute,
        RunState(folder / ".state", fingerprint) as state,
    ):
        if state.restore(outputs):
            return
        flops, steps = _budget(params, text)
        rate = artifacts.read_json(inp.rate)["learning_rate"]
        trained = experiment.train(
            PretrainingVariantSettings.model_validate(params.variant),
            SizeSettings.model_validate(params.model),
            text,
            OptimisationSettings.model_validate(params.optimisation),
            EvaluationSettings.model_validate(params.evaluation),
            learning_rate=rate,
            steps=steps,
            seed=seed,
            state=state,
            compute=compute,
            label=os.path.join(*folder.parts[-2:]),
        )
        metrics = experiment.summary(trained, artifacts.read_json(inp.baseline))
        metrics |= {"flops": flops * steps, "steps": steps}
        _save(trained.model, Path(out.weights), Path(out.config))
        artifacts.write_tensors(out.checkpoints, trained.run.checkpoints)
        artifacts.write_table(out.history, _history(trained.run, flops))
        artifacts.write_json(out.metrics, metrics)
        record = provenance.record(seed=seed, device=compute.device, started=started)
        artifacts.write_json(
            out.run,
            {
                "params": given | {"learning_rate": rate},
                "metrics": metrics,
                "provenance": record | {"seconds_per_step": trained.seconds_per_step},
            },
        )
        state.keep(outputs)


def _history(run: Run, flops: float) -> pd.DataFrame:
    """The curves; `train_loss` is the mean over the steps since the point before."""
    table = pd.DataFrame(run.evaluations)
    steps = table["step"].tolist()
    parts = [run.loss[start:end] for start, end in itertools.pairwise(steps)]
    table["train_loss"] = [np.nan, *(part.mean() for part in parts)]
    return table.assign(flops=table["step"] * flops)


def _save(model: BertForMaskedLM, weights: Path, config: Path) -> None:
    """Write a model as its library does, the files whole or absent."""
    with (
        artifacts.writing(config) as new_config,
        artifacts.writing(weights) as new_weights,
        TemporaryDirectory(prefix=".", dir=weights.parent) as folder,
    ):
        model.save_pretrained(folder)
        shutil.copyfile(Path(folder, config.name), new_config)
        shutil.copyfile(Path(folder, weights.name), new_weights)


def _budget(params: Any, text: Text) -> tuple[float, int]:
    """Operations of a step, and how many steps to take."""
    size = SizeSettings.model_validate(params.model)
    steps, batch = params.optimisation["steps"], params.optimisation["batch"]
    own, other = (
        variant
        and experiment.step_flops(
            PretrainingVariantSettings.model_validate(variant), size, text, batch=batch
        )
        for variant in (params.variant, params.flops_of)
    )
    return own, experiment.steps_for(other * steps, own) if other else steps


job.run(main, globals())
