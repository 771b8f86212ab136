"""Draw the cosines between word embeddings, ordered by topic: trained and random weights."""

import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw one row a model: trained weights left, random initial weights right."""
    figures.style()
    names, paths = snakemake.params.models, snakemake.input.cosines
    figure, axes = plt.subplots(len(names), 2, figsize=(13, 5.6 * len(names)), squeeze=False)
    for row, name, path in zip(axes, names, paths, strict=True):
        arrays = artifacts.read_tensors(path)
        words = json.loads(artifacts.read_metadata(path)["words"])
        starts = np.flatnonzero(np.diff(arrays["topic"], prepend=-1))
        off_diagonal = arrays["trained"][~np.eye(len(words), dtype=bool)]
        limit = float(np.quantile(np.abs(off_diagonal), 0.99))
        for ax, kind, label in zip(
            row, ("trained", "control"), ("trained", "random weights"), strict=True
        ):
            cosines = arrays[kind].copy()
            np.fill_diagonal(cosines, 0)  # the diagonal would set the scale
            figures.matrix(
                ax, cosines, boundaries=starts[1:], title=f"{name}, {label}", label="cosine",
                limit=limit,
            )  # fmt: skip
            ends = [*starts[1:], len(words)]
            middles = [(a + b - 1) / 2 for a, b in zip(starts, ends, strict=True)]
            labels = ["\n".join(words[a : a + 3]) for a in starts]
            ax.set_yticks(middles, labels=labels, fontsize=8)
            ax.set_xticks([])
            ax.set(xlabel="the same words", ylabel="words, by topic (three of each named)")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
