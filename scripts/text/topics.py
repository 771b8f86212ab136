"""Fit LDA to a corpus with one seed, and list its topics: top words, coherence, size."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, provenance
from scripts.anatomy.text import lda, membership
from scripts.anatomy.text.settings import LdaSettings

TOP = 15


def main(snakemake: Any) -> None:
    """Fit the topics, and describe them on the sampled documents."""
    started = time.perf_counter()
    inp, out = snakemake.input, snakemake.output
    seed = int(snakemake.wildcards.seed)
    settings = LdaSettings.model_validate(snakemake.params.lda)
    words, bags = lda.load(Path(inp.dictionary), Path(inp.bags))
    topics = lda.fit(bags, words, settings, seed=seed)
    arrays, metadata = lda.to_arrays(topics)
    artifacts.write_tensors(out.topics, arrays, metadata=metadata)

    sample = artifacts.read_table(inp.documents)["text"].tolist()
    mixtures = lda.mixtures(topics, sample, seed=seed)
    coherence = lda.coherence(topics, bags)
    table = pd.DataFrame(
        {
            "topic": range(len(coherence)),
            "share": mixtures.mean(axis=0),
            "coherence": coherence,
            "words": [" ".join(row) for row in lda.top_words(topics, TOP)],
        }
    )
    artifacts.write_table(out.table, table.sort_values("share", ascending=False))
    artifacts.write_tensors(out.mixtures, {"mixtures": mixtures})
    effective = float(np.median(membership.effective_topics(mixtures)))
    metrics = {
        "documents": topics.documents,
        "words": len(topics.words),
        "coherence": float(coherence.mean()),
        "bound": lda.bound(topics, sample, seed=seed),
        "effective_topics": effective,
        "effective_topics_share": effective / len(coherence),
    }
    artifacts.write_json(
        out.run,
        {
            "params": settings.model_dump(mode="json"),
            "metrics": metrics,
            "provenance": provenance.record(seed=seed, device="cpu", started=started),
        },
    )


job.run(main, globals())
