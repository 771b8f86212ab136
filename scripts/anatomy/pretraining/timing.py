"""How long a training step takes: of all variants in turn, so that a busy machine is fair."""

from collections.abc import Callable, Mapping

import torch

from scripts.anatomy import timing
from scripts.anatomy.devices import Compute
from scripts.anatomy.pretraining import data, experiment
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.settings import (
    OptimisationSettings,
    PretrainingVariantSettings,
    SizeSettings,
)


def seconds(
    variants: Mapping[str, PretrainingVariantSettings],
    size: SizeSettings,
    text: Text,
    optimisation: OptimisationSettings,
    *,
    rounds: int,
    compute: Compute,
) -> dict[str, float]:
    """The shortest of so many steps of each variant, masks and optimiser included.

    The shortest is that with the least of what else the machine did. A first round warms up.
    """
    steps = [stepper(one, size, text, optimisation, compute) for one in variants.values()]
    times = [[_timed(step, number) for step in steps] for number in range(rounds + 1)]
    return dict(zip(variants, map(min, zip(*times[1:], strict=True)), strict=True))


def stepper(
    variant: PretrainingVariantSettings,
    size: SizeSettings,
    text: Text,
    optimisation: OptimisationSettings,
    compute: Compute,
) -> Callable[[int], None]:
    """A function that trains a new model by one step; it waits until the step is done."""
    rows = data.rows_of_step(text.train, batch=optimisation.batch, seed=0)
    model = experiment.build(variant, size, text, seed=0).to(compute.device).train()
    optimiser = experiment.recipe(optimisation, 1, 1e-4).build(model.parameters())
    cuda = compute.device.startswith("cuda")

    def step(number: int) -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=compute.autocast and cuda):
            loss = experiment.loss(model, text.masked(rows(number), 0, "masks", number))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if cuda:
            torch.cuda.synchronize(compute.device)

    return step


def _timed(step: Callable[[int], None], number: int) -> float:
    return timing.seconds(lambda: step(number))
