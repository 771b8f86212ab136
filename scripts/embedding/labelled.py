"""Read labelled text and divide it into parts that have no group (no film) in common."""

from typing import Any

from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.embedding import classification_data
from scripts.anatomy.embedding.settings import Labelled


def main(snakemake: Any) -> None:
    """Write the texts in random order with their parts, and counts."""
    choice = TypeAdapter(Labelled).validate_python(snakemake.params.labelled)
    with job.config_errors(f"embedding.finetuning.labelled.{snakemake.wildcards.data}"):
        read = classification_data.read(choice)
        texts = classification_data.split(read, choice, seeding.numpy_generator(0, "parts"))
    artifacts.write_table(snakemake.output.texts, texts)
    parts = {
        part: {
            "texts": len(rows),
            "groups": rows["group"].nunique(),
            **{f"label {name}": n for name, n in rows["name"].value_counts().items()},
        }
        for part, rows in texts.groupby("part")
    }
    artifacts.write_json(snakemake.output.counts, parts)


job.run(main, globals())
