"""A BERT of the topic study as a model that the other studies can read: weights and a tokenizer."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.topic import bert
from scripts.anatomy.topic.settings import TopicVariantSettings


def main(snakemake: Any) -> None:
    """Write what transformers reads."""
    record = artifacts.read_json(snakemake.input.run)
    variant = TopicVariantSettings.model_validate(record["params"])
    weights = artifacts.read_tensors(snakemake.input.weights, framework="torch")
    with artifacts.writing_folder(snakemake.output.folder) as folder:
        bert.save_for_transformers(weights, variant.model, folder)
        digest = artifacts.digest(sorted(folder.iterdir()))
    artifacts.write_json(snakemake.output.source, {**snakemake.params.model, "digest": digest})


job.run(main, globals())
