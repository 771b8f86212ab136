"""Yardsticks of a corpus, per seed: statistics, loss floor, best block matrices, pair counts.

Sampled corpora of disjoint topics are measured on a larger sample of their own, for the differences
between small samples are larger than those that the claims are about. Pair counts are those of the
held-out documents.
"""

from typing import Any

from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.topic import baselines, corpora
from scripts.anatomy.topic.settings import BlockCorpusSettings, CorpusSettings

SAMPLE = 30_000


def main(snakemake: Any) -> None:
    """Measure the corpus of every seed."""
    params = snakemake.params
    settings = TypeAdapter(CorpusSettings).validate_python(params.corpus)
    files = zip(params.seeds, snakemake.input.corpus, snakemake.output, strict=True)
    for seed, path, output in files:
        corpus = measured = corpora.load(path)
        if isinstance(settings, BlockCorpusSettings):
            larger = settings.model_copy(update={"train": SAMPLE, "validation": 1})
            measured = corpora.sample(larger, seeding.numpy_generator(seed, "larger sample"))
        found: dict[str, Any] = {"statistics": corpora.statistics(measured)}
        if _blocks(corpus):
            rng = seeding.numpy_generator(seed, "yardsticks")
            found |= baselines.yardsticks(measured, getattr(settings, "alpha", None), rng)
            found["pair_counts"] = {
                name: baselines.released_pair_counts(
                    corpus.validation, corpus.membership, fixed=name == "fixed"
                )
                for name in ("released", "fixed")
            }
        artifacts.write_json(output, found)


def _blocks(corpus: corpora.Corpus) -> bool:
    """Whether the topics are disjoint and of equal size."""
    try:
        corpora.check_blocks(corpus.membership)
    except ValueError:
        return False
    return True


job.run(main, globals())
