"""Cost of heads of each kind: parameters, operations, time and memory, beside learned heads.

Two parts of every variant are measured: the attention block of one layer (queries, keys and values,
all heads, W_O), and the whole encoder with its embeddings. The code is the same in all variants;
only their heads differ. Operations are counted (`flops.py`) for one sequence in a forward pass.
Time is that of a step, forward and backward, of a batch; variants are timed in turn. Memory is the
peak of such a step beyond the weights: activations for the backward pass, gradients, and scratch.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import BertForMaskedLM

from scripts.anatomy import seeding
from scripts.anatomy.devices import Compute
from scripts.anatomy.flops import count
from scripts.anatomy.lego_attention import Associates, MixedAttention, associates
from scripts.anatomy.pretraining import data, experiment
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.settings import (
    OptimisationSettings,
    PretrainingVariantSettings,
    SizeSettings,
)
from scripts.anatomy.timing import in_turn, interleaved

PAD = 0
PARTS = ("attention", "encoder")
# Quantities whose ratios to the first variant are in the table
MEASURED = ("parameters", "attention_parameters") + tuple(
    f"{part}_{what}" for part in PARTS for what in ("flops", "seconds", "bytes")
)


@dataclass(frozen=True)
class Blocks:
    """The measured parts of one variant, with their inputs at one length.

    Attributes:
        encoder: The model's encoder, with its embeddings.
        block: The attention of its first layer.
        tokens: A batch of ids.
        inputs: Input of the block.
        same: Associates of each position.
    """

    encoder: nn.Module
    block: MixedAttention
    tokens: Int64[Tensor, "batch length"]
    inputs: Tensor
    same: Associates

    def attention(self, rows: int | None = None) -> Tensor:
        """Return the block's output for the first `rows` sequences."""
        same = self.same if rows is None else associates(self.tokens[:rows])
        return self.block(self.inputs[:rows], same)[0]

    def whole(self, rows: int | None = None) -> Tensor:
        """Return the encoder's output for the first `rows` sequences."""
        return self.encoder(self.tokens[:rows]).last_hidden_state

    def forward(self, part: str, rows: int | None = None) -> Tensor:
        """Return the output of one of the two parts."""
        return self.attention(rows) if part == "attention" else self.whole(rows)

    def step(self, part: str) -> None:
        """Run a forward and a backward pass, and discard the gradients."""
        out = self.forward(part)
        out.backward(torch.ones_like(out))
        self.encoder.zero_grad(set_to_none=True)
        self.inputs.grad = None
        if out.is_cuda:
            torch.cuda.synchronize(out.device)


def table(
    variants: Mapping[str, PretrainingVariantSettings],
    size: SizeSettings,
    *,
    d_vocab: int,
    lengths: list[int],
    batch: int,
    repeats: int,
    device: str = "cpu",
) -> pd.DataFrame:
    """Return a table with a row for every variant and length, in their order.

    Columns: variant, split (association/convolution/learned), window, length; parameters (of the
    masked language model), attention_parameters (of one layer); flops (of a sequence, forward),
    seconds (of a step) and bytes, each with the prefix attention_ and encoder_. The ratio of each
    quantity to the first variant's is in a column with the suffix _ratio.

    Raises:
        ValueError: A variant's heads do not fit the size.
    """
    models = {
        name: model(variant, size, d_vocab=d_vocab, max_length=max(lengths)).to(device).train()
        for name, variant in variants.items()
    }
    table = []
    for length in lengths:
        tokens = text(batch, length, d_vocab).to(device)
        blocks = {name: blocks_of(one, tokens) for name, one in models.items()}
        rows = [
            {"variant": name, "split": variants[name].heads.split, "window": variants[name].window}
            | {"length": length}
            | parameters(models[name])
            for name in models
        ]
        for part in PARTS:
            runs = [_stepper(one, part) for one in blocks.values()]
            # more repeats of short sequences, whose times vary more
            seconds = interleaved(runs, repeats * max(lengths) // length)
            for row, one, time_taken in zip(rows, blocks.values(), seconds, strict=True):
                row[f"{part}_flops"] = flops(one, part)
                row[f"{part}_seconds"] = time_taken
                row[f"{part}_bytes"] = peak_bytes(_stepper(one, part), device)
        for row in rows:
            table.append(row | {f"{key}_ratio": row[key] / rows[0][key] for key in MEASURED})
    return pd.DataFrame(table)


def ratios(table: pd.DataFrame) -> dict[str, dict[str, float | dict[str, float]]]:
    """Return the ratios by variant: of parameters, and of the rest by length (`length128`)."""
    by_variant: dict = {}
    for row in table.to_dict("records"):
        of_variant = by_variant.setdefault(
            row["variant"],
            {key: row[f"{key}_ratio"] for key in ("parameters", "attention_parameters")},
        )
        of_variant[f"length{row['length']}"] = {
            key: row[f"{key}_ratio"] for key in MEASURED if "parameters" not in key
        }
    return by_variant


def model(
    variant: PretrainingVariantSettings, size: SizeSettings, *, d_vocab: int, max_length: int
) -> BertForMaskedLM:
    """Return the untrained masked language model of a variant, without dropout."""
    without_dropout = size.model_copy(update={"dropout": 0.0})
    return experiment.bert(
        variant, without_dropout, d_vocab=d_vocab, length=max_length, pad=PAD, seed=0
    )


def blocks_of(model: BertForMaskedLM, tokens: Int64[Tensor, "batch length"]) -> Blocks:
    """Return the measured parts of a model for a batch."""
    width = model.config.hidden_size
    inputs = torch.randn(*tokens.shape, width, generator=seeding.torch_generator(0, "inputs"))
    return Blocks(
        encoder=model.bert,
        block=model.bert.encoder.layer[0].attention.self.mixing,
        tokens=tokens,
        inputs=inputs.to(tokens.device).requires_grad_(),
        same=associates(tokens),
    )


def text(batch: int, length: int, d_vocab: int) -> Int64[Tensor, "batch length"]:
    """Return ids without padding, with the frequencies of Zipf's law."""
    frequency = 1 / torch.arange(1, d_vocab)
    draws = torch.multinomial(
        frequency, batch * length, replacement=True, generator=seeding.torch_generator(0, "text")
    )
    return draws.view(batch, length) + 1  # 0 is padding


def parameters(model: BertForMaskedLM) -> dict[str, int]:
    """Return the numbers of parameters; shared ones count once."""
    block = model.bert.encoder.layer[0].attention.self
    return {
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "attention_parameters": sum(weights.numel() for weights in block.parameters()),
    }


def flops(blocks: Blocks, part: str) -> int:
    """Return the operations of a forward pass of one sequence."""
    return count(lambda: blocks.forward(part, rows=1))


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """Return the peak memory of `run` beyond the memory before it.

    On CUDA it is the allocator's peak. On a CPU it is the peak of torch's allocations minus
    releases, as its profiler lists them, without the memory of its kernels' libraries.
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        run()
    return max(_held(profiler), default=0)


def _held(profiler: profile) -> Iterator[int]:
    """Yield the bytes held after each allocation and release."""
    events = profiler.profiler.kineto_results.events()
    held = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            yield held


def _stepper(blocks: Blocks, part: str) -> Callable[[], None]:
    return lambda: blocks.step(part)


def step_seconds(
    variants: Mapping[str, PretrainingVariantSettings],
    size: SizeSettings,
    text: Text,
    optimisation: OptimisationSettings,
    *,
    rounds: int,
    compute: Compute,
) -> dict[str, float]:
    """Return the shortest of `rounds` training steps of each variant, masks and optimiser included.

    The shortest step is the one least disturbed by other load on the machine.
    """
    steps = [
        training_step(variant, size, text, optimisation, compute) for variant in variants.values()
    ]
    return dict(zip(variants, map(min, in_turn(steps, rounds)), strict=True))


def training_step(
    variant: PretrainingVariantSettings,
    size: SizeSettings,
    text: Text,
    optimisation: OptimisationSettings,
    compute: Compute,
) -> Callable[[], None]:
    """Return a function that trains a new model by one more step and waits for the device."""
    rows = data.rows_of_step(text.train, batch=optimisation.batch, seed=0)
    model = experiment.build(variant, size, text, seed=0).to(compute.device).train()
    optimiser = experiment.recipe(optimisation, 1, 1e-4).build(model.parameters())
    cuda = compute.device.startswith("cuda")
    numbers = itertools.count()

    def step() -> None:
        number = next(numbers)
        with torch.autocast("cuda", torch.bfloat16, enabled=compute.autocast and cuda):
            loss = experiment.loss(model, text.masked(rows(number), 0, "masks", number))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if cuda:
            torch.cuda.synchronize(compute.device)

    return step
