"""Draw the topics of the first LDA fit: their words, their share of the text, their coherence."""

from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from scripts import job
from scripts.anatomy import artifacts, figures

WORDS = 7


def main(snakemake: Any) -> None:
    """Draw one panel a corpus, one bar a topic."""
    figures.style()
    names = snakemake.params.corpora
    tables = [artifacts.read_table(path) for path in snakemake.input.tables]
    colours = sns.color_palette("crest", as_cmap=True)
    norm = Normalize(
        min(table["coherence"].min() for table in tables),
        max(table["coherence"].max() for table in tables),
    )
    height = 1.5 + 0.3 * max(map(len, tables))
    figure, axes = plt.subplots(1, len(names), figsize=(9.5 * len(names), height), squeeze=False)
    for ax, name, table in zip(axes[0], names, tables, strict=True):
        labels = [" ".join(words.split()[:WORDS]) for words in table["words"]]
        ax.barh(range(len(table)), 100 * table["share"], color=colours(norm(table["coherence"])))
        ax.set_yticks(range(len(table)), labels=labels, fontsize=10)
        ax.set_ylim(len(table) - 0.5, -0.5)
        ax.set(title=name, xlabel="share of the sampled documents (%)")
    bar = ScalarMappable(norm, colours)
    figure.colorbar(bar, ax=axes, label="coherence (u_mass; 0: words always together)", shrink=0.8)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
