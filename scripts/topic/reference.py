"""Yardsticks of a corpus, per seed: statistics, loss floor, best block matrices, pair counts."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.topic import corpora, reference, storage


def main(snakemake: Any) -> None:
    """Measure the corpus of every seed."""
    params = snakemake.params
    files = zip(params.seeds, snakemake.input.corpus, snakemake.output, strict=True)
    for seed, path, output in files:
        corpus = storage.read_corpus(path)
        found: dict[str, Any] = {"statistics": corpora.statistics(corpus)}
        sizes = corpus.membership.sum(axis=0)
        if (corpus.membership.sum(axis=1) == 1).all() and len(set(sizes)) == 1:
            rng = seeding.numpy_generator(seed, "yardsticks")
            found |= reference.yardsticks(corpus, params.alpha, rng)
            found["pair_counts"] = {
                name: reference.released_pair_counts(
                    corpus.dev, corpus.membership, fixed=name == "fixed"
                )
                for name in ("released", "fixed")
            }
        artifacts.write_json(output, found)


job.run(main, globals())
