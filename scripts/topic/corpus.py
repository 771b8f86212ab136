"""Sample a corpus once per seed, or read it from text files, in which case all seeds share it."""

from typing import Any

from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import seeding
from scripts.anatomy.topic import corpora
from scripts.anatomy.topic.settings import CorpusSettings, TextFileCorpusSettings


def main(snakemake: Any) -> None:
    """Write the corpus of every seed."""
    settings = TypeAdapter(CorpusSettings).validate_python(snakemake.params.corpus)
    for seed, path in zip(snakemake.params.seeds, snakemake.output, strict=True):
        if isinstance(settings, TextFileCorpusSettings):
            corpus = corpora.read(settings)
        else:
            corpus = corpora.sample(settings, seeding.numpy_generator(seed, "corpus"))
        corpora.save(path, corpus)


job.run(main, globals())
