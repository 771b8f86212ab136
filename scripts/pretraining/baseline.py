"""Compute the baselines of a masked token without its context."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.pretraining import data, masking
from scripts.anatomy.pretraining.settings import PretrainingMaskingSettings


def main(snakemake: Any) -> None:
    """Count the tokens of the training text, and write the losses on the validation rows."""
    params, inp = snakemake.params, snakemake.input
    settings = PretrainingMaskingSettings.model_validate(params.masking)
    text = data.load(inp, settings)
    batches = data.validation_batches(text, params.rows)
    counts = data.counts(text.train, text.d_tokens)
    artifacts.write_json(
        snakemake.output[0], masking.baselines(batches, counts, settings, text.special)
    )


job.run(main, globals())
