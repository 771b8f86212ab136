"""One pretraining run: train the masked language model of a variant on packed text."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

from scripts.anatomy import flops, seeding
from scripts.anatomy.devices import Compute
from scripts.anatomy.lego_attention_bert import replace_attention
from scripts.anatomy.pretraining import data
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.masking import Masked
from scripts.anatomy.pretraining.settings import (
    EvaluationSettings,
    OptimisationSettings,
    PretrainingVariantSettings,
    SizeSettings,
)
from scripts.anatomy.training import Recipe, Run, RunState, checkpoint_steps, even_steps, fit

ON_CPU = Compute()
FLOPS_ROWS = 16  # rows on which operations are counted


def build(
    variant: PretrainingVariantSettings, size: SizeSettings, text: Text, seed: int
) -> BertForMaskedLM:
    """Return the untrained model for packed text."""
    return bert(
        variant,
        size,
        d_vocab=text.d_vocab,
        length=text.train.shape[1],
        pad=text.special.pad,
        special=[text.special.unk, text.special.cls, text.special.sep],
        mask=text.special.mask,
        seed=seed,
    )


def bert(
    variant: PretrainingVariantSettings,
    size: SizeSettings,
    *,
    d_vocab: int,
    length: int,
    pad: int,
    special: Sequence[int] = (),
    mask: int | None = None,
    seed: int,
) -> BertForMaskedLM:
    """Return an untrained masked language model for rows of `length`; see `replace_attention`."""
    config = BertConfig(
        vocab_size=d_vocab,
        hidden_size=size.d_model,
        num_hidden_layers=size.n_layers,
        num_attention_heads=size.n_heads,
        intermediate_size=size.d_ff,
        max_position_embeddings=length,
        pad_token_id=pad,
        hidden_dropout_prob=size.dropout,
        attention_probs_dropout_prob=size.dropout,
        initializer_range=size.init or size.d_model**-0.5,
    )
    with seeding.torch_seeded(seed, "init"):
        model = BertForMaskedLM(config)
        replace_attention(
            model,
            heads=variant.heads,
            window=variant.window,
            pad=pad,
            special=special,
            mask=mask,
        )
    return model


def loss(model: BertForMaskedLM, masked: Masked) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats at the selected positions, the only ones computed."""
    logits, target = _predict(model, masked)
    return functional.cross_entropy(logits.float(), target)


def _predict(
    model: BertForMaskedLM, masked: Masked
) -> tuple[Float[Tensor, "selected d_vocab"], Integer[Tensor, "selected"]]:
    observed, index, target = (
        torch.from_numpy(array).to(model.device)
        for array in (masked.observed, masked.index, masked.target)
    )
    hidden = model.bert(observed).last_hidden_state.flatten(0, 1)
    return model.cls(hidden.index_select(0, index)), target


def step_flops(
    variant: PretrainingVariantSettings, size: SizeSettings, text: Text, *, batch: int
) -> float:
    """Return the operations of a training step, forward and backward (see `flops.py`).

    They are counted on a few rows, with the same masks for all variants and seeds.
    """
    model = build(variant, size, text, seed=0)
    rows = min(batch, FLOPS_ROWS, len(text.train))
    masked = text.masked(text.train[:rows], 0, "counted rows")
    return flops.count(lambda: loss(model, masked).backward()) / rows * batch


def steps_for(total: float, per_step: float) -> int:
    """Return the number of steps, at least one, whose cost is nearest to a total."""
    return max(round(total / per_step), 1)


def measure(model: BertForMaskedLM, batches: Sequence[Masked]) -> dict[str, float]:
    """Return a model's losses in nats and its accuracy on validation rows.

    `loss_repeated` is over targets whose token is visible elsewhere in its row, `loss_new` over
    the others.
    """
    losses, right = [], []
    for part in batches:
        logits, target = _predict(model, part)
        losses.append(functional.cross_entropy(logits.float(), target, reduction="none").cpu())
        right.append((logits.argmax(dim=1) == target).cpu())
    each = torch.cat(losses).numpy()
    repeated = np.concatenate([part.repeated for part in batches])
    return {
        "loss": float(each.mean()),
        "loss_repeated": float(each[repeated].mean()) if repeated.any() else float("nan"),
        "loss_new": float(each[~repeated].mean()) if not repeated.all() else float("nan"),
        "accuracy": float(torch.cat(right).float().mean()),
    }


@dataclass(frozen=True)
class TrainedBert:
    """A finished run.

    Attributes:
        model: The trained model, on the CPU.
        run: Losses, evaluations and checkpoints of the training.
        seconds_per_step: Time of a step with little other load on the machine: the fastest tenth
            of the steps. NaN if this process took no step.
    """

    model: BertForMaskedLM
    run: Run
    seconds_per_step: float


def train(
    variant: PretrainingVariantSettings,
    size: SizeSettings,
    text: Text,
    optimisation: OptimisationSettings,
    evaluation: EvaluationSettings,
    *,
    learning_rate: float,
    steps: int,
    seed: int,
    state: RunState,
    keep: bool = True,
    compute: Compute = ON_CPU,
    label: str = "training",
) -> TrainedBert:
    """Train a variant; the learning curves are `measure` on the validation rows.

    Rows and masks of a step depend on the seed and the step only, so all variants read the same.
    The masks of validation rows are fixed.
    """
    rows = data.rows_of_step(text.train, batch=optimisation.batch, seed=seed)
    model = build(variant, size, text, seed).to(compute.device)
    if compute.compile and compute.device.startswith("cuda"):
        model.bert.compile()
    batches = data.validation_batches(text, evaluation.rows)

    began: dict[int, float] = {}

    def loss_at(step: int) -> Float[Tensor, ""]:
        began[step] = time.perf_counter()
        return loss(model, text.masked(rows(step), seed, "masks", step))

    kept = checkpoint_steps(steps, evaluation.checkpoints) if keep else []
    points = even_steps(0, steps, evaluation.eval_points)
    run = fit(
        model,
        loss_at,
        recipe(optimisation, steps, learning_rate),
        state=state,
        seed=seed,
        checkpoint_steps=[*kept, *points],
        keep_parameters=kept,
        evaluate=lambda: measure(model, batches),
        device=compute.device,
        autocast=compute.autocast,
        save_every=compute.save_every,
        label=label,
    )
    gaps = np.diff([*began.values()])
    return TrainedBert(
        model.cpu(), run, float(np.quantile(gaps, 0.1)) if len(gaps) else float("nan")
    )


def recipe(optimisation: OptimisationSettings, steps: int, learning_rate: float) -> Recipe:
    """Return the recipe of a run with so many steps."""
    return Recipe(
        steps=steps,
        learning_rate=learning_rate,
        schedule="linear",
        warmup=round(optimisation.warmup * steps),
        clip=optimisation.clip,
        weight_decay=optimisation.weight_decay,
        betas=optimisation.betas,
    )


def summary(trained: TrainedBert, baseline: Mapping[str, float]) -> dict[str, float]:
    """Return the last evaluation of a run, and how far its loss is below the baselines."""
    last = {name: value for name, value in trained.run.evaluations[-1].items() if name != "step"}
    below = {f"below_{name}": value - last["loss"] for name, value in baseline.items()}
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    return last | below | {"parameters": parameters}
