"""Draw the attention ratio and the cosine gap against the filter.

The threshold grows to the right, where only unambiguous words remain. Bands reach from the lowest
to the highest LDA fit.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw a row a corpus, a pair of panels a model, a curve a fraction."""
    figures.style()
    table = artifacts.read_table(snakemake.input.table)
    table = table[table["weights"].isin(["trained", "control"])]
    corpora, models = table["corpus"].unique(), table["model"].unique()
    figure, axes = plt.subplots(
        2 * len(corpora), len(models), figsize=(1 + 4.2 * len(models), 6.2 * len(corpora)),
        sharex=True, sharey="row", squeeze=False,
    )  # fmt: skip
    for row, corpus in enumerate(corpora):
        for column, model in enumerate(models):
            rows = table[(table["corpus"] == corpus) & (table["model"] == model)]
            upper, lower = axes[2 * row : 2 * row + 2, column]
            _draw(upper, rows, "ratio", 1)
            _draw(lower, rows, "cosine_gap", 0)
            upper.set_title(f"{model} on {corpus}")
        axes[2 * row, 0].set_ylabel("attention:\nsame / different topic")
        axes[2 * row + 1, 0].set_ylabel("cosine:\nsame - different topic")
    for ax in axes[-1]:
        ax.set_xlabel("ambiguity threshold")
    figures.legend_above(axes[0, 0], ncols=3)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, rows: pd.DataFrame, column: str, nothing: float) -> None:
    figures.guide(ax, y=nothing)
    fractions = sorted(rows["fraction"].unique())
    colours = sns.color_palette("viridis", len(fractions))
    for fraction, colour in zip(fractions, colours, strict=True):
        of_fraction = rows[rows["fraction"] == fraction]
        trained = of_fraction[of_fraction["weights"] == "trained"]
        label = f"top {100 * fraction:g} % of the dictionary"
        figures.band(ax, trained, column, x="threshold", label=label, colour=colour, marker="o")
    control = rows[rows["weights"] == "control"]
    figures.band(
        ax, control, column, x="threshold", label="random weights, all filters", colour="grey"
    )


job.run(main, globals())
