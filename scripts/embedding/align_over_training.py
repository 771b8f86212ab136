"""When in training two models that differ by their seed alone come to be alike in vocabulary space.

Every pair of seeds of a variant of the pretraining study is aligned at every checkpoint that was
kept, over tokens and by the controls of `alignment.controls`. As these models are shallow, the
groups of all layers are matched with one another too (`blocks`), where chance finds few.
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.embedding import aggregation, alignment
from scripts.anatomy.embedding.views import ModelView, view
from scripts.anatomy.models import checkpoints

BLOCKS = "blocks"


def main(snakemake: Any) -> None:
    """Align all pairs at all steps."""
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    files = {
        seed: (Path(config), Path(kept))
        for seed, config, kept in zip(params.seeds, inp.config, inp.checkpoints, strict=True)
    }
    steps, *_ = [checkpoints.steps(kept) for _, kept in files.values()]  # alike in all seeds
    rows = []
    with job.compute(snakemake) as compute, job.config_errors("embedding.alignment.training"):
        for index, step in enumerate(steps):
            models = {
                seed: view(checkpoints.model_at(*of_seed, index).to(compute.device))
                for seed, of_seed in files.items()
            }
            for one, other in combinations(models, 2):
                pair = {"seed_a": one, "seed_b": other, "step": step}
                pair["layers"] = len(models[one].layers)
                draw = seeding.derive(one, "aligned with", other)
                records = _aligned(models[one], models[other], draw, params.draws)
                rows += [pair | row for row in records]
    table = pd.DataFrame(rows)
    artifacts.write_table(out.table, table)
    artifacts.write_json(out.summary, aggregation.over_training(table))


def _aligned(A: ModelView, B: ModelView, seed: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield what matching says, by measure and group of parameters."""
    tokens = (torch.arange(len(A.W_E)),) * 2
    kernels = alignment.kernels(A, B, tokens)
    alignment.conditions(kernels)
    chance = alignment.chance(kernels.read, seeding.torch_generator(seed, "normal vectors"))
    measures = [("embedding", None, kernels), *alignment.controls(A, B, tokens, [seed])]
    for measure, _, of_measure in measures:
        scores = alignment.model_scores(A, B, of_measure)
        rng = seeding.numpy_generator(seed, "assignments", measure)
        blocks = {BLOCKS: alignment.block_scores(A, B, of_measure)}
        summaries = alignment.summary(blocks, rng, draws) | alignment.summary(scores, rng, draws)
        for group, record in summaries.items():
            yield {"measure": measure, "group": group, **record, "chance": chance}


job.run(main, globals())
