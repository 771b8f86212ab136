"""Time a training step of every variant, in turn, for learning curves by time."""

import time
from typing import Any

import torch

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.pretraining import cost, data
from scripts.anatomy.pretraining.settings import (
    OptimisationSettings,
    PretrainingMaskingSettings,
    PretrainingVariantSettings,
    SizeSettings,
)


def main(snakemake: Any) -> None:
    """Write the seconds of a step by variant."""
    started = time.perf_counter()
    torch.set_num_threads(snakemake.threads)
    params = snakemake.params
    text = data.load(snakemake.input, PretrainingMaskingSettings.model_validate(params.masking))
    with job.config_errors("pretraining.optimisation.batch"):
        data.check_batch(text, params.optimisation["batch"])
    with job.compute(snakemake) as compute:
        seconds = cost.step_seconds(
            {
                name: PretrainingVariantSettings.model_validate(one)
                for name, one in params.variants.items()
            },
            SizeSettings.model_validate(params.model),
            text,
            OptimisationSettings.model_validate(params.optimisation),
            rounds=params.rounds,
            compute=compute,
        )
        record = provenance.record(seed=None, device=compute.device, started=started)
    artifacts.write_json(snakemake.output[0], {"seconds": seconds, "provenance": record})


job.run(main, globals())
