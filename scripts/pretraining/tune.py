"""Find a variant's learning rate: short trainings with each, on the data of the first seed.

All variants try the same rates for the same number of steps, so that none is favoured.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

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
    """Try every rate, and write which is best."""
    torch.set_num_threads(snakemake.threads)
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    text = data.load(inp, PretrainingMaskingSettings.model_validate(params.masking))
    files = [Path(path) for path in inp]
    rates = params.optimisation["learning_rates"]
    with job.blaming("pretraining.optimisation.batch"):
        data.check_batch(text, params.optimisation["batch"])
    with job.compute(snakemake) as compute:
        losses = [_loss(snakemake, text, files, rate, compute) for rate in rates]
    table = pd.DataFrame({"learning_rate": rates, "loss": losses})
    best = table["loss"].idxmin()
    at_an_end = len(rates) > 1 and rates[best] in (min(rates), max(rates))
    artifacts.write_table(out.table, table)
    artifacts.write_json(
        out.best,
        {"learning_rate": rates[best], "loss": losses[best], "at_an_end": at_an_end},
    )


def _loss(snakemake: Any, text: Text, files: list[Path], rate: float, compute: Compute) -> float:
    """The held-out loss after a short training."""
    params = snakemake.params
    optimisation = OptimisationSettings.model_validate(params.optimisation)
    parts = [params.variant, params.model, params.masking, params.optimisation, params.rows]
    fingerprint = job.fingerprint(*parts, params.seed, params.code, rate, *files)
    folder = Path(snakemake.output.best).parent
    with RunState(folder / ".state" / f"{rate:g}", fingerprint) as state:
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
            label=f"{folder.parent.name}, rate {rate:g}",
        )
    return trained.run.evaluations[-1]["loss"]


job.run(main, globals())
