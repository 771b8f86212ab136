"""Train one variant of the LEGO study with one seed: weights, learning curves, a record."""

from pathlib import Path
from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.lego import experiment
from scripts.anatomy.lego.settings import LegoVariantSettings, TaskSettings


def main(snakemake: Any) -> None:
    """Train, and write weights, learning curves and a record."""
    params = snakemake.params
    variant = LegoVariantSettings.model_validate(params.variant)
    for training in job.trainings(snakemake):
        model_folder = training.input.get("model")
        folder = None if model_folder is None else Path(model_folder)
        key = f"variants.{snakemake.wildcards.variant}" if folder else f"tasks.{variant.task}"
        with job.config_errors(f"lego.{key}"):
            task = experiment.task_of(variant, TaskSettings.model_validate(params.task), folder)
            model = experiment.build(variant, task, training.seed, folder)
            test = experiment.test_sentences(variant, task, params.test, training.seed)
        run = experiment.train(
            model,
            variant,
            task,
            seed=training.seed,
            state=training.state,
            test=test,
            compute=training.compute,
            label=training.label,
        )
        artifacts.write_tensors(training.output["weights"], model.state_dict())
        artifacts.write_table(training.output["history"], pd.DataFrame(run.evaluations))
        training.write_record(
            {"variant": dict(params.variant), "task": dict(params.task)},
            {"first_loss": float(run.loss[0]), "last_loss": float(run.loss[-100:].mean())},
        )


job.run(main, globals())
