"""What heads of each kind cost: parameters, operations, time and memory, against learned heads.

Two things are measured of every variant: the attention block of one layer (queries, keys and
values, all heads, W_O), and the whole encoder with its embeddings. Both are the same code in all
variants, and differ in their heads alone. Operations are counted (`flops.py`), for one sequence in
a forward pass. Time is that of a step, forward and backward, of a batch; variants take turns, so
that a slow spell of the machine meets them all. Memory is the peak of the same step beyond the
weights: what is kept for the backward pass, gradients, and scratch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import BertForMaskedLM

from scripts.anatomy import seeding
from scripts.anatomy.flops import count
from scripts.anatomy.lego_attention import Associates, MixedAttention, associates
from scripts.anatomy.pretraining import experiment
from scripts.anatomy.pretraining.settings import PretrainingVariantSettings, SizeSettings
from scripts.anatomy.timing import interleaved

PAD = 0
PARTS = ("attention", "encoder")
# of these the table has ratios to the first variant
MEASURED = ("parameters", "attention_parameters") + tuple(
    f"{part}_{what}" for part in PARTS for what in ("flops", "seconds", "bytes")
)


@dataclass(frozen=True)
class Blocks:
    """What is measured of one variant, at one length.

    Attributes:
        encoder: The model's encoder, with its embeddings.
        block: The attention of its first layer.
        tokens: A batch of ids.
        inputs: What the block reads.
        same: Who associates with whom.
    """

    encoder: nn.Module
    block: MixedAttention
    tokens: Int64[Tensor, "batch length"]
    inputs: Tensor
    same: Associates

    def attention(self, rows: int | None = None) -> Tensor:
        """The block's forward pass, over the first `rows` sequences."""
        same = self.same if rows is None else associates(self.tokens[:rows])
        return self.block(self.inputs[:rows], same)[0]

    def whole(self, rows: int | None = None) -> Tensor:
        """The encoder's forward pass."""
        return self.encoder(self.tokens[:rows]).last_hidden_state

    def forward(self, part: str, rows: int | None = None) -> Tensor:
        """That of one of the two."""
        return self.attention(rows) if part == "attention" else self.whole(rows)

    def step(self, part: str) -> None:
        """Forward and backward; no gradient is left over."""
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
    """A row for every variant and length, in their order.

    Columns: variant, split (association/convolution/learned), window, length; parameters (of the
    masked language model), attention_parameters (of one layer); attention_ and encoder_ flops (a
    sequence, forward), seconds (a step) and bytes; and of all these, with _ratio, the ratio to the
    first variant's.

    Raises:
        ValueError: A variant's heads do not fit the size.
    """
    models = {
        name: model(variant, size, d_vocab=d_vocab, max_length=max(lengths)).to(device).train()
        for name, variant in variants.items()
    }
    rows = []
    for length in lengths:
        tokens = text(batch, length, d_vocab).to(device)
        blocks = {name: blocks_of(one, tokens) for name, one in models.items()}
        found = [
            {"variant": name, "split": variants[name].heads.split, "window": variants[name].window}
            | {"length": length}
            | parameters(models[name])
            for name in models
        ]
        for part in PARTS:
            runs = [_stepper(one, part) for one in blocks.values()]
            # short sequences take so little time that chance counts for more
            seconds = interleaved(runs, repeats * max(lengths) // length)
            for row, one, time_taken in zip(found, blocks.values(), seconds, strict=True):
                row[f"{part}_flops"] = flops(one, part)
                row[f"{part}_seconds"] = time_taken
                row[f"{part}_bytes"] = peak_bytes(_stepper(one, part), device)
        for row in found:
            rows.append(row | {f"{key}_ratio": row[key] / found[0][key] for key in MEASURED})
    return pd.DataFrame(rows)


def ratios(table: pd.DataFrame) -> dict[str, dict[str, float | dict[str, float]]]:
    """The ratios by variant: of parameters, and for each length (`length128`) of all the rest."""
    found: dict = {}
    for row in table.to_dict("records"):
        of_variant = found.setdefault(
            row["variant"],
            {key: row[f"{key}_ratio"] for key in ("parameters", "attention_parameters")},
        )
        of_variant[f"length{row['length']}"] = {
            key: row[f"{key}_ratio"] for key in MEASURED if "parameters" not in key
        }
    return found


def model(
    variant: PretrainingVariantSettings, size: SizeSettings, *, d_vocab: int, max_length: int
) -> BertForMaskedLM:
    """The untrained masked language model of a variant, without dropout."""
    plain = size.model_copy(update={"dropout": 0.0})
    return experiment.bert(variant, plain, d_vocab=d_vocab, length=max_length, pad=PAD, seed=0)


def blocks_of(model: BertForMaskedLM, tokens: Int64[Tensor, "batch length"]) -> Blocks:
    """A model and a batch, ready to be measured."""
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
    """Ids without padding that repeat as words do, with frequencies by Zipf's law."""
    frequency = 1 / torch.arange(1, d_vocab)
    draws = torch.multinomial(
        frequency, batch * length, replacement=True, generator=seeding.torch_generator(0, "text")
    )
    return draws.view(batch, length) + 1  # 0 is padding


def parameters(model: BertForMaskedLM) -> dict[str, int]:
    """Numbers of weights; shared ones count once."""
    block = model.bert.encoder.layer[0].attention.self
    return {
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "attention_parameters": sum(weights.numel() for weights in block.parameters()),
    }


def flops(blocks: Blocks, part: str) -> int:
    """Operations of a forward pass of one sequence."""
    return count(lambda: blocks.forward(part, rows=1))


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """The most memory that `run` has at a time, beyond what there was before.

    On CUDA it is the allocator's own figure. On a CPU it is the sum over torch's allocations and
    releases, as its profiler lists them; what its kernels' libraries take for themselves is left
    out.
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
    """Bytes held after each allocation and release."""
    events = profiler.profiler.kineto_results.events()
    held = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            yield held


def _stepper(blocks: Blocks, part: str) -> Callable[[], None]:
    return lambda: blocks.step(part)
