"""Score association and manipulation heads of a pretrained model, before any training on LEGO.

Sentences are those of the published task in the model's own tokens. Scores are against the same
architecture at random weights; the maps of one sentence in chain order are kept for the pictures.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from scripts import job
from scripts.anatomy import artifacts, provenance, seeding
from scripts.anatomy.lego import graphs, groups, probes, tasks
from scripts.anatomy.lego.models import LibraryTransformer
from scripts.anatomy.lego.settings import ProbingSettings
from scripts.anatomy.lego.tasks import Task
from scripts.anatomy.models import loading


def main(snakemake: Any) -> None:
    """Score the heads of the model and of its controls."""
    started = time.perf_counter()
    params, out = snakemake.params, snakemake.output
    probing = ProbingSettings.model_validate(params.probing)
    folder = Path(snakemake.input.model)
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        job.compute(snakemake) as compute,
    ):
        model = loading.model(folder)
        tokenizer = loading.tokenizer(folder, len(model.get_input_embeddings().weight))
        group = groups.built_in("z2")
        layout = tasks.of_tokenizer(tokenizer, group, tasks.alphabet(26))
        task = Task(group, layout, graphs.path(probing.n), probing.n)
        batch = tasks.sample(task, probing.maps, seeding.numpy_generator(0, "sentences"))
        tables = [_scores(model, batch, layout, compute.device).assign(weights="trained", seed=0)]
        for seed in params.seeds:
            control = _scores(loading.control(folder, seed), batch, layout, compute.device)
            tables.append(control.assign(weights="control", seed=seed))
        ordered = Task(group, layout, task.graph, probing.n, order=tuple(range(probing.n)))
        sentence = tasks.sample(ordered, 1, seeding.numpy_generator(0, "shown"))
        shown = torch.from_numpy(sentence.tokens).to(compute.device)
        maps = next(probes.attention_maps(_readable(model, compute.device), shown))
    table = pd.concat(tables, ignore_index=True)
    artifacts.write_table(out.heads, table)
    words = tasks.text(layout, sentence.tokens[0])
    artifacts.write_tensors(
        out.maps, {"maps": maps[0].float().cpu().numpy()}, metadata={"words": " ".join(words)}
    )
    record = provenance.record(seed=None, device=str(compute.device), started=started)
    artifacts.write_json(
        out.run,
        {"params": dict(params.probing), "metrics": _summary(table), "provenance": record},
    )


def _readable(model: PreTrainedModel, device: str) -> LibraryTransformer:
    """Return the model with an interface that returns maps; its classifier is not used."""
    generator = seeding.torch_generator(0, "classifier")
    return LibraryTransformer(model, classes=1, generator=generator).to(device).eval()


def _scores(
    model: PreTrainedModel, batch: tasks.Batch, layout: tasks.Layout, device: str
) -> pd.DataFrame:
    """Return a table with one row per head."""
    tokens = torch.from_numpy(batch.tokens)
    letters = torch.from_numpy(layout.ids(layout.letters).astype(np.int64)).to(device)
    maps = probes.attention_maps(_readable(model, device), tokens.to(device))
    scores = probes.head_scores(maps, tokens, letters)
    layer, head = np.indices(scores.association.shape)
    return pd.DataFrame(
        {
            "layer": layer.ravel(),
            "head": head.ravel(),
            "association": scores.association.ravel(),
            "association_on_variables": scores.association_on_variables.ravel(),
            "manipulation": scores.manipulation.ravel(),
            "best_offset": scores.best_offset.ravel(),
            "best_offset_mass": scores.best_offset_mass.ravel(),
        }
    )


def _summary(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the best scores and the numbers of clear heads, of the model and its controls."""
    summary: dict[str, dict[str, Any]] = {}
    for weights, rows in table.groupby("weights"):
        of_seeds = rows.groupby("seed")
        record = {}
        for score, clear in (("association_on_variables", 0.5), ("manipulation", 0.8)):
            record[f"best_{score}"] = of_seeds[score].max().tolist()
            count = (rows[score] >= clear).groupby(rows["seed"]).sum()
            record[f"clear_{score}"] = count.tolist()
        if weights == "trained":  # one model, so numbers
            record = {name: values[0] for name, values in record.items()}
        summary[weights] = record
    return summary


job.run(main, globals())
