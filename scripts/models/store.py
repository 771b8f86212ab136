"""Bring a model that the configuration names into results/models/, once; jobs then run offline."""

from typing import Any

from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import artifacts
from scripts.anatomy.models import store
from scripts.anatomy.models.settings import ModelSettings


def main(snakemake: Any) -> None:
    """Fill the model's folder, and note where it comes from."""
    model = TypeAdapter(ModelSettings).validate_python(snakemake.params.model)
    with (
        job.blaming(f"models.{snakemake.wildcards.model}"),
        artifacts.writing_folder(snakemake.output.folder) as folder,
    ):
        source = store.store(model, folder)
        source["digest"] = artifacts.digest(sorted(folder.iterdir()))
    artifacts.write_json(snakemake.output.source, source)


job.run(main, globals())
