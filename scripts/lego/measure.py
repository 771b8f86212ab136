"""Measure trained models: accuracies, shortcuts, layer probes, heads."""

from pathlib import Path
from typing import Any

import torch

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.lego import evaluation, experiment
from scripts.anatomy.lego.settings import LegoVariantSettings, ProbingSettings, TaskSettings


def main(snakemake: Any) -> None:
    """Write the record of every seed."""
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    variant = LegoVariantSettings.model_validate(params.variant)
    task_settings = TaskSettings.model_validate(params.task)
    folder = Path(inp.model) if variant.pretrained else None
    task = experiment.task_of(variant, task_settings, folder)
    probing = ProbingSettings.model_validate(params.probing)
    baseline = artifacts.read_json(inp.counting_baseline)["accuracy"]
    with job.compute(snakemake) as compute, torch.inference_mode():
        for seed, weights, history, target in zip(
            params.seeds, inp.weights, inp.history, out.metrics, strict=True
        ):
            model = experiment.build(variant, task, seed, folder)
            metrics = evaluation.evaluate(
                experiment.load(model, Path(weights)).to(compute.device),
                variant,
                task_settings,
                task,
                probing,
                artifacts.read_table(history),
                baseline,
                seed=seed,
            )
            artifacts.write_json(target, metrics)


job.run(main, globals())
