"""One LEGO run: from a task and a variant to a trained model and its learning curves."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from scripts.anatomy import seeding
from scripts.anatomy.compute import Compute
from scripts.anatomy.lego import evaluate, mimic, settings, task
from scripts.anatomy.lego.models import LegoTransformer
from scripts.anatomy.lego.task import Batch, Task
from scripts.anatomy.training import Recipe, Run, RunState, fit

STEPS_AT_ONCE = 20  # whose sentences are drawn together
ON_CPU = Compute()


def build(variant: settings.Variant, rules: Task, seed: int) -> LegoTransformer:
    """The untrained model."""
    order = rules.group.order
    return LegoTransformer(
        variant.model,
        d_vocab=rules.layout.d_vocab,
        length=rules.layout.length(rules.n),
        classes=1 if variant.one_logit and order == 2 else order,
        special=rules.layout.ids([task.START, task.END]).tolist(),
        generator=seeding.torch_generator(seed, "init"),
    )


@dataclass(frozen=True)
class Tensors:
    """A batch on a device."""

    tokens: Tensor
    values: Tensor
    places: Tensor


def tensors(batch: Batch, device: str = "cpu") -> Tensors:
    """What a model needs of a batch."""
    return Tensors(
        *(torch.from_numpy(x).to(device) for x in (batch.tokens, batch.values, batch.places))
    )


def train(
    variant: settings.Variant,
    rules: Task,
    *,
    seed: int,
    state: RunState,
    test: Batch,
    compute: Compute = ON_CPU,
    label: str = "training",
) -> tuple[LegoTransformer, Run]:
    """Train a variant on its task; the curves are accuracies by position on the test sentences."""
    model = build(variant, rules, seed).to(compute.device)
    if compute.compile and compute.device.startswith("cuda"):
        model.compile()
    mimicked = variant.mimicking.steps if variant.mimicking else 0
    sentences = _sentences(variant, rules, seed, compute.device)
    held = tensors(test, compute.device)

    def loss_at(step: int) -> Float[Tensor, ""]:
        batch = sentences(step)
        if step < mimicked:
            return _mimicking(model, batch, variant.mimicking, seed, step)
        loss = _task_loss(model, batch, variant, rules.n, step - mimicked)
        if variant.mimicking and variant.mimicking.keep:
            loss = loss + variant.mimicking.keep * _mimicking(
                model, batch, variant.mimicking, seed, step
            )
        return loss

    def accuracies() -> dict[str, float]:
        predicted = evaluate.predictions(model, held.tokens, held.places)
        found = evaluate.accuracy(predicted, test.values)
        return {f"position{k}": float(a) for k, a in enumerate(found)}

    total = mimicked + variant.steps
    points = np.linspace(mimicked, total, variant.evaluations + 1).round().astype(int).tolist()
    run = fit(
        model,
        loss_at,
        Recipe(
            steps=total,
            learning_rate=variant.learning_rate,
            schedule=variant.schedule,
            warmup=variant.warmup,
            clip=variant.clip,
        ),
        state=state,
        seed=seed,
        checkpoint_steps=points,
        keep_parameters=False,
        evaluate=accuracies,
        device=compute.device,
        autocast=compute.autocast,
        save_every=compute.save_every,
        label=label,
    )
    return model.cpu(), run


def _sentences(
    variant: settings.Variant, rules: Task, seed: int, device: str
) -> Callable[[int], Tensors]:
    """The sentences of every step, a function of (seed, step)."""
    size = variant.batch
    if variant.sentences is not None:
        rng = seeding.numpy_generator(seed, "training sentences")
        whole = task.sample(rules, variant.sentences, rng)
        per_epoch = max(len(whole) // size, 1)

        def fixed(step: int) -> Tensors:
            epoch, place = divmod(step, per_epoch)
            order = seeding.numpy_generator(seed, "order", epoch).permutation(len(whole))
            return tensors(whole[order[place * size : (place + 1) * size]], device)

        return fixed
    held: dict[int, Batch] = {}

    def fresh(step: int) -> Tensors:
        block, place = divmod(step, STEPS_AT_ONCE)
        if block not in held:
            held.clear()
            rng = seeding.numpy_generator(seed, "sentences", block)
            held[block] = task.sample(rules, size * STEPS_AT_ONCE, rng)
        return tensors(held[block][place * size : (place + 1) * size], device)

    return fresh


def supervised(variant: settings.Variant, n: int, step: int = 2**31) -> list[int]:
    """The positions that have a loss at a step (by default: at the end)."""
    if variant.leaf_only:
        return [n - 1]
    most = variant.n_tr or n
    if variant.curriculum is not None:
        most = min(most, 1 + step // variant.curriculum)
    return list(range(most))


def _task_loss(
    model: LegoTransformer, batch: Tensors, variant: settings.Variant, n: int, step: int
) -> Float[Tensor, ""]:
    """The loss at the supervised positions, after the last layer or after every one."""
    positions = supervised(variant, n, step)
    places, values = batch.places[:, positions], batch.values[:, positions]
    if not variant.deep:
        return evaluate.loss(model(batch.tokens, places), values)
    hidden = model.read(batch.tokens, places).hidden[:, 1:]
    logits = model.classify(hidden)
    spread = values[:, None].expand(*hidden.shape[:3])
    return evaluate.loss(logits.flatten(0, 1), spread.flatten(0, 1))


def _mimicking(
    model: LegoTransformer, batch: Tensors, choice: settings.Mimicking, seed: int, step: int
) -> Float[Tensor, ""]:
    """The mimicking loss, a mean over layers so that the learning rate need not know the depth."""
    tokens = batch.tokens[: choice.batch]
    maps = model.read(tokens, maps=True).maps
    target = tokens
    if choice.shuffled:
        generator = seeding.torch_generator(seed, "wrong targets", step)
        target = mimic.shuffled(tokens, generator)
    return mimic.loss(maps, target, patterns=choice.patterns) / maps.shape[1]
