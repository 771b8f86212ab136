"""Read a corpus: make its dictionary, its bags of words, and a sample to measure on.

The documents are streamed twice, for the dictionary and for the rest; only the sample is in memory.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.text import corpora, lda
from scripts.anatomy.text.settings import DictionarySettings, TextCorpusSettings


def main(snakemake: Any) -> None:
    """Write the dictionary, the bags and the sample."""
    params, out = snakemake.params, snakemake.output
    corpus = TypeAdapter(TextCorpusSettings).validate_python(params.corpus)
    settings = DictionarySettings.model_validate(params.dictionary)
    kept: list[str] = []
    with job.config_errors(f"text.corpora.{snakemake.wildcards.corpus}"):
        words = lda.dictionary(corpora.documents(corpus), settings)
        size = min(corpus.sample, words.num_docs)
        rng = seeding.numpy_generator(0, "documents")
        chosen = rng.choice(words.num_docs, size, replace=False)
        stream = _keeping(corpora.documents(corpus), chosen, kept)
        lda.save_bags(Path(out.bags), lda.bags(stream, words, tfidf=params.tfidf))
    with artifacts.writing(out.dictionary) as path:
        words.save_as_text(str(path))
    artifacts.write_table(out.documents, pd.DataFrame({"text": kept}))


def _keeping(documents: Iterable[str], chosen: np.ndarray, kept: list[str]) -> Iterator[str]:
    """Yield all documents, and append those with chosen indices to `kept`."""
    indices = set(chosen.tolist())
    for index, document in enumerate(documents):
        if index in indices:
            kept.append(document)
        yield document


job.run(main, globals())
