"""What fine-tuning, or a LoRA adapter, changes: read as tokens, and set against controls.

The table has the share of sentiment words by seed, layer and group of parameters (section 4.4 and
Appendix D made a number). The words are the top tokens of the vectors that changed most.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedModel

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.embedding import (
    aggregation,
    finetuning,
    lexicon,
    lora,
    tokens,
    weight_difference,
)
from scripts.anatomy.embedding.projection import extremes
from scripts.anatomy.embedding.views import ModelView, view
from scripts.anatomy.embedding.weight_difference import Rows
from scripts.anatomy.models import loading

SHOWN = 4  # vectors of a layer and group whose words are written
PREFIX = "model."  # of the model's parameters in a classifier


def main(snakemake: Any) -> None:
    """Measure every seed; write the words of the first."""
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    with job.compute(snakemake) as compute:
        with job.config_errors(f"models.{params.model}"):
            model = loading.model(Path(inp.model), head=True).to(compute.device)
            seen = view(model)
            tokenizer = loading.tokenizer(Path(inp.model), len(seen.W_E))
        vocabulary = tokens.read_vocabulary(tokenizer, len(seen.W_E))
        labels = tokens.labels(vocabulary)
        allowed = torch.from_numpy(tokens.token_filter(vocabulary, keep="whole_word"))
        with job.config_errors("embedding.finetuning.lexicon"):
            words = lexicon.words(params.lexicon and Path(params.lexicon))
            inside = lexicon.among(vocabulary, words)
        records, words_of_first = [], []
        with job.config_errors(params.key):
            for seed, path in zip(params.seeds, inp.changes, strict=True):
                for rows in _changes(model, seen, Path(path)):
                    some = weight_difference.drawn(rows, params.vectors, seed)
                    shares = weight_difference.lexicon_shares(
                        some, inside=inside, allowed=allowed, k=params.top, seed=seed
                    )
                    keys = {"seed": seed, "layer": rows.layer, "group": rows.group}
                    records.append(keys | {"vectors": len(some.D)} | shares)
                    if seed == params.seeds[0]:
                        most = weight_difference.largest(rows, SHOWN)
                        words_of_first += _words(most, labels, inside, allowed, params.top)
    table = pd.DataFrame(records)
    artifacts.write_table(out.table, table)
    artifacts.write_table(out.words, pd.DataFrame(words_of_first))
    artifacts.write_json(out.summary, aggregation.lexicon(table))


def _changes(model: PreTrainedModel, seen: ModelView, path: Path) -> Iterator[Rows]:
    """Yield all vectors that a training or an adapter changes, and those of the linear layer."""
    if path.name == "adapter_model.safetensors":
        yield from weight_difference.groups(
            seen, weight_difference.seen(model, lora.differences(path.parent, model))
        )
        return
    stored = artifacts.read_tensors(path, framework="torch")
    change = weight_difference.of(model, _of_base(stored))
    yield from weight_difference.groups(seen, weight_difference.seen(model, change))
    last, first = stored["classifier.weight"], stored[finetuning.BEFORE]
    yield weight_difference.classifier_rows(
        seen, (last - first).to(model.device), first.to(model.device)
    )


def _of_base(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(PREFIX): tensor
        for name, tensor in stored.items()
        if name.startswith(PREFIX)
    }


def _words(rows: Rows, labels: list[str], inside: Any, allowed: Any, k: int) -> Iterator[dict]:
    """Yield the top tokens of D and -D of each vector, and which of them are words of sentiment."""
    top = extremes(rows.D, rows.E, k=k, allowed=allowed)
    for index, norm in enumerate(rows.D.norm(dim=1).tolist()):
        row = {
            "layer": rows.layer,
            "group": rows.group,
            "head": int(rows.head[index]),
            "index": int(rows.index[index]),
            "norm": norm,
        }
        for sign, ids in (("+", top.ids_high), ("-", top.ids_low)):
            of_vector = ids[index].tolist()
            yield row | {
                "sign": sign,
                "tokens": [labels[i] for i in of_vector],
                "sentiment": [bool(inside[i]) for i in of_vector],
            }


job.run(main, globals())
