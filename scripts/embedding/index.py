"""The top tokens of every parameter vector of a model: what all that follows is read from."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.embedding import heads, index, parameters, tokens
from scripts.anatomy.embedding.settings import ReadingSettings
from scripts.anatomy.embedding.views import view
from scripts.anatomy.models import loading


def main(snakemake: Any) -> None:
    """Write the index, and the vocabulary beside it."""
    params, out = snakemake.params, snakemake.output
    folder = Path(snakemake.input.model)
    with (
        job.config_errors(f"models.{snakemake.wildcards.model}"),
        job.compute(snakemake) as compute,
    ):
        model = view(loading.model(folder, head=True).to(compute.device))
        tokenizer = loading.tokenizer(folder, len(model.W_E))
        vocabulary = tokens.read_vocabulary(tokenizer, len(model.W_E))
        allowed = torch.from_numpy(tokens.token_filter(vocabulary)).to(compute.device)
        lists = parameters.parameter_lists(
            parameters.read_as(model, ReadingSettings.model_validate(params.reading)),
            layers=heads.spaced(len(model.layers), params.layers),
            k=params.top,
            allowed=allowed,
            directions=params.directions,
        )
        index.write_index(out.index, lists, d_vocab=len(model.W_E))
    artifacts.write_table(
        out.vocabulary,
        pd.DataFrame(
            {
                "text": vocabulary.texts,
                "label": tokens.labels(vocabulary),
                "starts_word": vocabulary.starts_word,
                "readable": vocabulary.readable,
            }
        ),
    )


job.run(main, globals())
