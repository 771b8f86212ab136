"""Measure the cost of the variants' heads: parameters, operations, time and memory, beside base.

Operations are counted by torch and do not depend on the machine. Times and memory do, so compare
only their ratios; variants are measured in turn.
"""

import time
from typing import Any

import torch

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.pretraining import cost
from scripts.anatomy.pretraining.settings import (
    CostSettings,
    PretrainingVariantSettings,
    SizeSettings,
)


def main(snakemake: Any) -> None:
    """Write the table of all lengths, and the ratios for the ledger."""
    started = time.perf_counter()
    torch.set_num_threads(snakemake.threads)
    params, out = snakemake.params, snakemake.output
    settings = CostSettings.model_validate(params.cost)
    variants = {
        name: PretrainingVariantSettings.model_validate(one)
        for name, one in params.variants.items()
    }
    with job.config_errors("pretraining.variants"), job.compute(snakemake) as compute:
        table = cost.table(
            variants,
            SizeSettings.model_validate(params.model),
            d_vocab=params.d_vocab,
            lengths=settings.lengths,
            batch=settings.batch,
            repeats=settings.repeats,
            device=compute.device,
        )
        record = provenance.record(seed=None, device=compute.device, started=started)
    artifacts.write_table(out.csv, table)
    given = {"cost": dict(params.cost), "model": dict(params.model), "d_vocab": params.d_vocab}
    artifacts.write_json(
        out.json, {"params": given, "metrics": cost.ratios(table), "provenance": record}
    )


job.run(main, globals())
