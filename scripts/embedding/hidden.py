"""Do the parameters that are active at a token show in its hidden state? R_k by layer (4.2)."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.embedding import aggregation, hidden_states, parameters, tokens
from scripts.anatomy.embedding.index import Index
from scripts.anatomy.embedding.settings import HiddenStatesSettings
from scripts.anatomy.embedding.views import view
from scripts.anatomy.models import loading


def main(snakemake: Any) -> None:
    """Run the model on some documents, and compare with the index and with the baseline."""
    params, inp = snakemake.params, snakemake.input
    settings = HiddenStatesSettings.model_validate(params.hidden)
    folder, index = Path(inp.model), Index(inp.index)
    texts = artifacts.read_table(inp.documents)["text"].tolist()[: settings.documents]
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        job.compute(snakemake) as compute,
    ):
        model = loading.model(folder, head=True).to(compute.device)
        W_U = parameters.output_embedding(view(model))
        tokenizer = loading.tokenizer(folder, len(W_U))
        vocabulary = tokens.read_vocabulary(tokenizer, len(W_U))
        readings = hidden_states.read_documents(
            model,
            tokens.cut(texts, tokenizer, min(settings.max_length, loading.positions(model))),
            W_U,
            layers=index.layers,
            k=settings.k,
            m=settings.m,
            allowed=torch.from_numpy(tokens.token_filter(vocabulary)),
            published=settings.published,
            skip=0 if settings.published else 1,
        )
    baseline = (
        hidden_states.published_baseline if settings.published else hidden_states.other_document
    )
    rows = []
    for layer in index.layers:
        lists = index.layer(layer)
        for seed in params.seeds:
            rng = seeding.numpy_generator(seed, "baseline")
            pairs = baseline(readings.document, rng)
            records = hidden_states.overlaps(readings, layer, lists, pairs, k=settings.k)
            rows += [{"seed": seed} | record for record in records]
    table = pd.DataFrame(rows)
    artifacts.write_table(snakemake.output.table, table)
    artifacts.write_json(
        snakemake.output.summary,
        aggregation.by_layer(table, ["target", "group"], above="aligned", below="random"),
    )


job.run(main, globals())
