"""Draw learned attention within one held-out document, its words sorted by topic.

The document is the first with three to four topics of three words or more; its first 30 words
are drawn. Sorting does not change the attention, since the model has no positions.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool, Float, Integer

from scripts import job
from scripts.anatomy import artifacts, figures
from scripts.anatomy.topic import corpora, measures
from scripts.anatomy.topic.corpora import FIRST_WORD, Corpus
from scripts.anatomy.topic.settings import TopicVariantSettings

N_WORDS = 30


def main(snakemake: Any) -> None:
    """Draw a panel per variant, first seed."""
    figures.style()
    names = snakemake.params.variants
    figure, axes = plt.subplots(1, len(names), figsize=(7.2 * len(names), 6.4), squeeze=False)
    inp = snakemake.input
    for ax, name, *paths in zip(axes[0], names, inp.corpus, inp.weights, inp.run, strict=True):
        corpus = corpora.load(paths[0])
        variant = TopicVariantSettings.model_validate(artifacts.read_json(paths[2])["params"])
        scores = measures.view(artifacts.read_tensors(paths[1]), variant.model).scores
        _draw(ax, scores, _document(corpus), corpus.membership)
        ax.set_title(figures.words(name))
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _document(corpus: Corpus) -> Integer[np.ndarray, "words"]:
    """Return the words of a document with a few topics, sorted by topic and word."""
    topic = corpus.membership.argmax(axis=1)
    for row in corpus.validation:
        words = row[row >= FIRST_WORD][:N_WORDS] - FIRST_WORD
        present, counts = np.unique(topic[words], return_counts=True)
        if 3 <= len(present) <= 4 and counts.min() >= 3:
            break
    return words[np.lexsort((words, topic[words]))]


def _draw(
    ax: plt.Axes,
    scores: Float[np.ndarray, "keys queries"],
    words: Integer[np.ndarray, "words"],
    membership: Bool[np.ndarray, "words topics"],
) -> None:
    tokens = words + FIRST_WORD
    weights = np.exp(scores[np.ix_(tokens, tokens)])
    weights = (weights / weights.sum(axis=0)).T * len(tokens)
    image = ax.imshow(weights, cmap="viridis", vmin=0, interpolation="nearest")
    topic = membership.argmax(axis=1)[words]
    for boundary in np.flatnonzero(np.diff(topic)) + 0.5:
        ax.axhline(boundary, color="white", linewidth=1)
        ax.axvline(boundary, color="white", linewidth=1)
    middles = [np.flatnonzero(topic == k).mean() for k in np.unique(topic)]
    labels = [f"topic {k}" for k in np.unique(topic)]
    ax.set_xticks(middles, labels=labels)
    ax.set_yticks(middles, labels=labels, rotation=90, va="center")
    ax.set(xlabel="attended word", ylabel="attending word")
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="attention weight / uniform weight")


job.run(main, globals())
