"""What a trained model knows: accuracies, shortcuts, the layer that resolves each variable."""

from pathlib import Path
from typing import Any

import torch

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.lego import examine, experiment, laws
from scripts.anatomy.lego.settings import Probing, Task, Variant


def main(snakemake: Any) -> None:
    """Measure every seed."""
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    variant = Variant.model_validate(params.variant)
    rules = laws.law(Task.model_validate(params.task))
    probing = Probing.model_validate(params.probing)
    bag = artifacts.read_json(inp.bag)["accuracy"]
    with job.compute(snakemake) as compute, torch.inference_mode():
        for seed, weights, history, target in zip(
            params.seeds, inp.weights, inp.history, out.metrics, strict=True
        ):
            model = experiment.build(variant, rules, seed)
            model.load_state_dict(artifacts.read_tensors(Path(weights), framework="torch"))
            found = examine.examine(
                model.to(compute.device).eval(),
                variant,
                rules,
                probing,
                artifacts.read_table(history),
                bag,
                seed=seed,
            )
            artifacts.write_json(target, found)


job.run(main, globals())
