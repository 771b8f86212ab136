"""Train one variant on one corpus, for one or several seeds.

Writes the trained weights, log-spaced checkpoints, the loss of every step with the validation loss
at the checkpoints, and a record of the run.
"""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.topic import corpora, experiment
from scripts.anatomy.topic.settings import TopicVariantSettings
from scripts.anatomy.training import Run


def main(snakemake: Any) -> None:
    """Train every seed of the job."""
    variant = TopicVariantSettings.model_validate(snakemake.params.variant)
    for training in job.trainings(snakemake):
        trained = experiment.train(
            variant,
            corpora.load(training.input["corpus"]),
            seed=training.seed,
            state=training.state,
            compute=training.compute,
            label=training.label,
        )
        out = training.output
        artifacts.write_tensors(out["weights"], trained.model.state_dict())
        artifacts.write_tensors(out["checkpoints"], trained.run.checkpoints)
        artifacts.write_table(out["history"], _history(trained.run))
        params = variant.model_dump(mode="json", exclude={"corpora", "job_per_seed"})
        training.write_record(params, _losses(trained))


def _history(run: Run) -> pd.DataFrame:
    """Return the training loss before each step, and the validation loss at the checkpoints."""
    loss = pd.DataFrame({"step": range(len(run.loss)), "loss": run.loss})
    return loss.merge(pd.DataFrame(run.evaluations), on="step", how="outer")


def _losses(trained: experiment.TrainedTopicModel) -> dict[str, float]:
    """Return first and last losses; the last training loss is a mean over 100 steps."""
    run = trained.run
    return {
        "first_loss": float(run.loss[0]),
        "last_loss": float(run.loss[-100:].mean()),
        "first_validation_loss": run.evaluations[0]["validation_loss"],
        "last_validation_loss": trained.validation_loss,
    }


job.run(main, globals())
