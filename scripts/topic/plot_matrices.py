"""Draw matrices over words as heat maps, one panel per variant.

embeddings: the Gram matrix W_E^T W_E (Figure 1 of the paper); values: W_V (Figure 2);
column_products: inner products of the columns of W_V; key_query: attention scores W_K^T W_Q.
The first seed is drawn; the numbers in the titles are means over all seeds.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from scripts import job
from scripts.anatomy import artifacts, figures
from scripts.anatomy.topic import corpora, measures
from scripts.anatomy.topic.settings import TopicVariantSettings

# For each figure: the matrix, the key of its block means in the metrics, the unit of its colours,
# and the labels of rows and columns.
FIGURES = {
    "embeddings": (
        lambda view: measures.gram(view.embedding[:, measures.FIRST_WORD :]),
        ("embedding", "gram"),
        "inner product",
        ("word", "word"),
    ),
    "values": (
        lambda view: measures.words(view.value),
        ("value",),
        "entry of $W_V$",
        ("predicted word", "attended word"),
    ),
    "column_products": (
        lambda view: measures.gram(measures.words(view.value)),
        ("column_products",),
        "inner product",
        ("attended word", "attended word"),
    ),
    "key_query": (
        lambda view: measures.words(view.scores).T,
        ("key_query",),
        "attention score",
        ("attending word (query)", "attended word (key)"),
    ),
}


def main(snakemake: Any) -> None:
    """Draw the figure that the params name."""
    figures.style()
    draw, keys, unit, (down, across) = FIGURES[snakemake.params.figure]
    names = snakemake.params.variants
    seeds = len(snakemake.input.metrics) // len(names)
    columns = {1: 1, 2: 2, 4: 2}.get(len(names), 3)
    rows = -(-len(names) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5.6 * columns, 4.8 * rows), squeeze=False)
    for index, (ax, name) in enumerate(zip(axes.flat, names, strict=False)):
        first = index * seeds
        view = measures.view(
            artifacts.read_tensors(snakemake.input.weights[first]),
            TopicVariantSettings.model_validate(
                artifacts.read_json(snakemake.input.run[first])["params"]
            ).model,
        )
        membership = corpora.load(snakemake.input.corpus[first]).membership
        blocks = [_blocks(path, keys) for path in snakemake.input.metrics[first : first + seeds]]
        same = np.mean([block["same_with_diagonal"] for block in blocks])
        different = np.mean([block["different"] for block in blocks])
        topic = membership.argmax(axis=1)  # a word's first topic
        order = np.argsort(topic, kind="stable")
        figures.matrix(
            ax,
            draw(view)[np.ix_(order, order)],
            boundaries=np.flatnonzero(np.diff(topic[order])) + 1,
            title=f"{figures.words(name)}\nsame topic {same:.3g}, different {different:.2g}",
            label=unit,
            rows=down,
            columns=across,
        )
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _blocks(path: str, keys: tuple[str, ...]) -> dict[str, float]:
    metrics = artifacts.read_json(path)
    for key in keys:
        metrics = metrics[key]
    return metrics


job.run(main, globals())
