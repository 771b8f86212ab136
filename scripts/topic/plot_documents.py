"""Draw the number of topics per document and the share of words in the largest topics.

The theorems assume few topics per document; the figure shows how far that holds for each corpus.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from scripts import job
from scripts.anatomy import figures
from scripts.anatomy.topic import corpora


def main(snakemake: Any) -> None:
    """Draw both panels, first seed."""
    figures.style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4))
    names = snakemake.params.corpora
    width = 0.8 / len(names)
    shifts = figures.offsets(len(names), width)
    for shift, name, path in zip(shifts, names, snakemake.input, strict=True):
        corpus = corpora.load(path)
        counts = corpora.topic_counts(corpus.train, corpus.membership)
        topics = np.bincount((counts > 0).sum(axis=1), minlength=counts.shape[1] + 1)
        left.bar(np.arange(len(topics)) + shift, topics / topics.sum(), width, label=name)
        share = np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
        covered = share.mean(axis=0).cumsum()
        right.plot(np.arange(1, len(covered) + 1), covered, "o-", label=name)
    left.set(xlabel="distinct topics in a document", ylabel="share of documents")
    left.set_xlim(0.4, None)
    left.set_xticks(range(1, int(left.get_xlim()[1]) + 1))
    left.legend(title="corpus")
    right.set(
        xlabel="largest topics of a document, counted",
        ylabel="share of its words in them",
        ylim=(0, 1.03),
    )
    right.xaxis.get_major_locator().set_params(integer=True)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
