"""A BERT of the pretraining study as a model that other studies can read: weights, a tokenizer."""

from pathlib import Path
from typing import Any

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.models import checkpoints


def main(snakemake: Any) -> None:
    """Write what transformers reads."""
    inp = snakemake.input
    kept = Path(inp.checkpoints)
    last = len(checkpoints.steps(kept)) - 1
    model = checkpoints.model_at(Path(inp.config), kept, last)
    with artifacts.writing_folder(snakemake.output.folder) as folder:
        model.save_pretrained(folder)
        for file in (inp.tokenizer, inp.names):
            artifacts.link_or_copy(file, folder / Path(file).name)
        digest = artifacts.digest(sorted(folder.iterdir()))
    artifacts.write_json(snakemake.output.source, {**snakemake.params.model, "digest": digest})


job.run(main, globals())
