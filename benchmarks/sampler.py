"""Compare sampling of the default LDA corpus with a plain loop over words.

In the loop, a document draws its topic mixture and its length, and every word draws a topic and
then a word of that topic. It uses `choice` of numpy with the same generator and knows, like the
sampler, that the words of a topic are equally likely, which saves it the slower weighted draw. It
runs on a few documents and is scaled up; its cost per document does not depend on their number.
"""

import numpy as np

from benchmarks.comparison import Result, default_config, seconds
from scripts.anatomy.topic import corpora
from scripts.anatomy.topic.settings import LdaCorpusSettings

DOCUMENTS = 30_000
DOCUMENTS_OF_LOOP = 100


def measure() -> Result:
    """Time both methods."""
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
    """Return `count` documents as lists of token ids, drawn word by word."""
    words = np.arange(corpora.FIRST_WORD, corpora.FIRST_WORD + corpus.words)
    words_by_topic = words.reshape(corpus.topics, corpus.words_per_topic)
    documents = []
    for _ in range(count):
        mixture = rng.dirichlet(np.full(corpus.topics, corpus.alpha))
        document = [corpora.START]
        for _ in range(rng.integers(corpus.min_length, corpus.max_length + 1)):
            topic = rng.choice(corpus.topics, p=mixture)
            document.append(int(rng.choice(words_by_topic[topic])))
        documents.append([*document, corpora.END])
    return documents
