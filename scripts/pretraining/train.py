"""Pretrain one variant with one seed: weights, checkpoints, learning curves, a record."""

import itertools
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from transformers import BertForMaskedLM

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.pretraining import data, experiment
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.settings import (
    EvaluationSettings,
    OptimisationSettings,
    PretrainingMaskingSettings,
    PretrainingVariantSettings,
    SizeSettings,
)
from scripts.anatomy.training import Run


def main(snakemake: Any) -> None:
    """Train, and write weights, checkpoints, curves and a record."""
    params = snakemake.params
    text = data.load(snakemake.input, PretrainingMaskingSettings.model_validate(params.masking))
    with job.config_errors("pretraining.optimisation.batch"):
        data.check_batch(text, params.optimisation["batch"])
    for training in job.trainings(snakemake):
        flops, steps = _budget(params, text)
        rate = artifacts.read_json(training.input["rate"])["learning_rate"]
        trained = experiment.train(
            PretrainingVariantSettings.model_validate(params.variant),
            SizeSettings.model_validate(params.model),
            text,
            OptimisationSettings.model_validate(params.optimisation),
            EvaluationSettings.model_validate(params.evaluation),
            learning_rate=rate,
            steps=steps,
            seed=training.seed,
            state=training.state,
            compute=training.compute,
            label=training.label,
        )
        metrics = experiment.summary(trained, artifacts.read_json(training.input["baseline"]))
        metrics |= {"flops": flops * steps, "steps": steps}
        out = training.output
        _save(trained.model, out["weights"], out["config"])
        artifacts.write_tensors(out["checkpoints"], trained.run.checkpoints)
        artifacts.write_table(out["history"], _history(trained.run, flops))
        artifacts.write_json(out["metrics"], metrics)
        settings = {name: value for name, value in params.items() if name != "code"}
        training.write_record(
            settings | {"learning_rate": rate},
            metrics,
            seconds_per_step=trained.seconds_per_step,
        )


def _history(run: Run, flops: float) -> pd.DataFrame:
    """Return the learning curves; `train_loss` is the mean since the previous point."""
    table = pd.DataFrame(run.evaluations)
    steps = table["step"].tolist()
    parts = [run.loss[start:end] for start, end in itertools.pairwise(steps)]
    table["train_loss"] = [np.nan, *(part.mean() for part in parts)]
    return table.assign(flops=table["step"] * flops)


def _save(model: BertForMaskedLM, weights: Path, config: Path) -> None:
    """Write a model as its library does; files are complete or absent."""
    with (
        artifacts.writing(config) as new_config,
        artifacts.writing(weights) as new_weights,
        TemporaryDirectory(prefix=".", dir=weights.parent) as folder,
    ):
        model.save_pretrained(folder)
        shutil.copyfile(Path(folder, config.name), new_config)
        shutil.copyfile(Path(folder, weights.name), new_weights)


def _budget(params: Any, text: Text) -> tuple[float, int]:
    """Return the operations of a step, and the number of steps."""
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
