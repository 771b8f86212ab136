"""Find a variant's learning rate by short trainings with each, on the data of the first seed.

All variants try the same rates for the same number of steps, so none is favoured.
"""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.devices import Compute
from scripts.anatomy.pretraining import data, experiment
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.settings import (
    EvaluationSettings,
    OptimisationSettings,
    PretrainingMaskingSettings,
    PretrainingVariantSettings,
    SizeSettings,
)
from scripts.anatomy.training import RunState


def main(snakemake: Any) -> None:
    """Try every rate, and write the best."""
    params, out = snakemake.params, snakemake.output
    text = data.load(snakemake.input, PretrainingMaskingSettings.model_validate(params.masking))
    rates = params.optimisation["learning_rates"]
    with job.config_errors("pretraining.optimisation.batch"):
        data.check_batch(text, params.optimisation["batch"])
    with job.compute(snakemake) as compute, job.parts(snakemake) as part:
        losses = []
        for rate in rates:
            with part(f"{rate:g}") as state:
                losses.append(_loss(params, text, rate, state, compute))
    table = pd.DataFrame({"learning_rate": rates, "loss": losses})
    best = table["loss"].idxmin()
    at_an_end = len(rates) > 1 and rates[best] in (min(rates), max(rates))
    artifacts.write_table(out.table, table)
    artifacts.write_json(
        out.best,
        {"learning_rate": rates[best], "loss": losses[best], "at_an_end": at_an_end},
    )


def _loss(params: Any, text: Text, rate: float, state: RunState, compute: Compute) -> float:
    """Return the validation loss after a short training."""
    optimisation = OptimisationSettings.model_validate(params.optimisation)
    trained = experiment.train(
        PretrainingVariantSettings.model_validate(params.variant),
        SizeSettings.model_validate(params.model),
        text,
        optimisation,
        EvaluationSettings(rows=params.rows, eval_points=1, checkpoints=1),
        learning_rate=rate,
        steps=optimisation.tuning_steps,
        seed=params.seed,
        state=state,
        keep=False,
        compute=compute,
        label=f"rate {rate:g}",
    )
    return trained.run.evaluations[-1]["loss"]


job.run(main, globals())
