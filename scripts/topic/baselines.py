"""Compute baselines of a corpus, per seed: statistics, loss floor, block matrices, pair counts.

Sampled corpora of disjoint topics are measured on a larger sample, since small samples differ by
more than the claims allow. Pair counts are those of the held-out documents.
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
        results: dict[str, Any] = {"statistics": corpora.statistics(measured)}
        if _blocks(corpus):
            rng = seeding.numpy_generator(seed, "yardsticks")
            results |= baselines.all_baselines(measured, getattr(settings, "alpha", None), rng)
            results["pair_counts"] = {
                name: baselines.released_pair_counts(
                    corpus.validation, corpus.membership, fixed=name == "fixed"
                )
                for name in ("released", "fixed")
            }
        artifacts.write_json(output, results)


def _blocks(corpus: corpora.Corpus) -> bool:
    """Return whether the topics are disjoint and of equal size."""
    try:
        corpora.check_blocks(corpus.membership)
    except ValueError:
        return False
    return True


job.run(main, globals())
