"""What is left of inner products when k coordinates are kept, with E^T and E+ (Appendix A)."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.embedding import aggregation, hidden_states, parameters, robustness, tokens
from scripts.anatomy.embedding.settings import ReadingSettings, RobustnessSettings
from scripts.anatomy.embedding.views import view
from scripts.anatomy.models import loading

PER_DOCUMENT = 20


def main(snakemake: Any) -> None:
    """Normal vectors, FF values, and hidden states with and without the first positions."""
    params, inp = snakemake.params, snakemake.input
    settings = RobustnessSettings.model_validate(params.robustness)
    folder, rows = Path(inp.model), []
    texts = artifacts.read_table(inp.documents)["text"].tolist()
    n = settings.vectors
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        job.compute(snakemake) as compute,
    ):
        model = loading.model(folder, head=True).to(compute.device)
        seen = parameters.read_as(view(model), ReadingSettings.model_validate(params.reading))
        tokenizer = loading.tokenizer(folder, len(seen.W_E))
        documents = tokens.cut(
            texts[: -(-n // PER_DOCUMENT)],
            tokenizer,
            min(params.max_length, loading.positions(model)),
        )
        ks = [k for k in settings.ks if k <= len(seen.W_E)]
        for seed in params.seeds:

            def draw(purpose: str, seed: int = seed) -> torch.Generator:
                return seeding.torch_generator(seed, purpose)

            kinds = {
                "normal": torch.randn(n, seen.W_E.shape[1], generator=draw("normal")),
                "FF values": robustness.sample_rows(
                    [layer.V for layer in seen.layers], n, draw("V")
                ),
            }
            for name, skip in (("hidden states", 1), ("hidden states, first positions too", 0)):
                kinds[name] = hidden_states.sample_states(
                    model, documents, draw("states"), per_document=PER_DOCUMENT, skip=skip
                )[:n]
            for name, vectors in kinds.items():
                records = robustness.inner_products_kept(vectors.to(compute.device), seen.W_E, ks)
                rows += [{"vectors": name, "seed": seed} | record for record in records]
    table = pd.DataFrame(rows)
    artifacts.write_table(snakemake.output.table, table)
    artifacts.write_json(snakemake.output.summary, aggregation.robustness(table))


job.run(main, globals())
