"""Sampling the default LDA corpus against a plain loop over words.

The loop is LDA as one writes it down: a document draws its topic mixture and its length, and
every word draws a topic by the mixture and then one of that topic's words. It uses numpy's own
`choice` with the same generator, and knows, like the sampler, that a topic's words are equally
likely, which spares it the slower draw by probabilities. It runs on a few documents and is scaled
up to the sampler's number; its cost per document does not depend on how many there are.
"""

import numpy as np

from benchmarks.comparison import Result, default_config, seconds
from scripts.anatomy.topic import corpora
from scripts.anatomy.topic.settings import LdaCorpusSettings

DOCUMENTS = 30_000
DOCUMENTS_OF_LOOP = 100


def measure() -> Result:
    """Time both."""
    settings = default_config().topic.corpora["lda"]
    corpus = settings.model_copy(update={"train": DOCUMENTS - settings.validation})
    rng = np.random.default_rng(0)
    ours, loop = seconds(
        lambda: corpora.sample(corpus, rng),
        lambda: plain_loop(corpus, DOCUMENTS_OF_LOOP, rng),
        repeats=9,
    )
    loop *= DOCUMENTS / DOCUMENTS_OF_LOOP
    return Result(
        what=f"sampling {DOCUMENTS:,} documents of the LDA corpus: sampler, loop over words",
        ratio=loop / ours,
        unit="times",
        aim=1000,
        details={"sampler": ours, "loop": loop},
        note=f"the loop on {DOCUMENTS_OF_LOOP} documents, scaled",
    )


def plain_loop(corpus: LdaCorpusSettings, count: int, rng: np.random.Generator) -> list[list[int]]:
    """`count` documents as lists of token ids, word by word."""
    words = np.arange(corpora.FIRST_WORD, corpora.FIRST_WORD + corpus.words)
    words_of = words.reshape(corpus.topics, corpus.words_per_topic)
    documents = []
    for _ in range(count):
        mixture = rng.dirichlet(np.full(corpus.topics, corpus.alpha))
        document = [corpora.START]
        for _ in range(rng.integers(corpus.min_length, corpus.max_length + 1)):
            topic = rng.choice(corpus.topics, p=mixture)
            document.append(int(rng.choice(words_of[topic])))
        documents.append([*document, corpora.END])
    return documents
