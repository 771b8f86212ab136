"""Draw accuracy by chain position over training, one panel per variant.

Dashed curves are unsupervised positions. Dotted lines are the counting baseline of each position.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from scripts import job
from scripts.anatomy import artifacts, figures

COLUMNS = 3


def main(snakemake: Any) -> None:
    """Draw the panels; bands show the spread over seeds."""
    figures.style()
    variants, inp = snakemake.params.variants, snakemake.input
    histories = figures.by_variant(variants, inp.history)
    measured = figures.by_variant(variants, inp.metrics)
    rows = -(-len(variants) // COLUMNS)
    wide = min(COLUMNS, len(variants))
    figure, axes = plt.subplots(
        rows, wide, figsize=(1 + 4.6 * wide, 0.8 + 3.2 * rows), squeeze=False
    )
    for ax in axes.flat:
        ax.set_visible(False)
    for ax, variant in zip(axes.flat, variants, strict=False):
        tables = [artifacts.read_table(path) for path in histories[variant]]
        _draw(ax, pd.concat(tables), artifacts.read_json(measured[variant][0]))
        ax.set_title(figures.words(variant))
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
    ax.set_visible(True)
    n = len(metrics["accuracy"])
    supervised = metrics["supervised"]
    colours = sns.color_palette("viridis", n)
    for k, colour in enumerate(colours):
        figures.band(
            ax, table, f"position{k}", label=f"{k}", colour=colour,
            linestyle="-" if k in supervised else "--",
        )  # fmt: skip
        if k:
            ax.axhline(metrics["counting_baseline"][k], color=colour, linewidth=0.8, linestyle=":")
    lowest = table[[f"position{k}" for k in range(n)]].min(axis=None)
    ax.set(xlabel="step", ylim=(0.4 if lowest > 0.4 else 0, 1.02))
    ax.set_xticks(np.linspace(0, table["step"].max(), 4).round(-1))
    ax.legend(title="position", fontsize="x-small", title_fontsize="x-small", ncols=2)


job.run(main, globals())
