"""What a trained model knows: accuracies, shortcuts, the layer that resolves each variable."""

from pathlib import Path
from typing import Any

import torch

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.lego import evaluation, experiment
from scripts.anatomy.lego.settings import Probing, Task, Variant


def main(snakemake: Any) -> None:
    """Measure every seed."""
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    variant, choice = Variant.model_validate(params.variant), Task.model_validate(params.task)
    folder = Path(inp.model) if variant.pretrained else None
    rules = experiment.law(variant, choice, folder)
    probing = Probing.model_validate(params.probing)
    bag = artifacts.read_json(inp.bag)["accuracy"]
    with job.compute(snakemake) as compute, torch.inference_mode():
        for seed, weights, history, target in zip(
            params.seeds, inp.weights, inp.history, out.metrics, strict=True
        ):
            model = experiment.build(variant, rules, seed, folder)
            found = evaluation.examine(
                experiment.load(model, Path(weights)).to(compute.device),
                variant,
                choice,
                rules,
                probing,
                artifacts.read_table(history),
                bag,
                seed=seed,
            )
            artifacts.write_json(target, found)


job.run(main, globals())
