"""Draw theory and measurement, with a column of panels per varied setting.

Top: block entries of W_V and Theorem 2. Bottom: the attention ratio R and Theorem 3. Dashed lines
are the theorems (infinitely long documents), solid lines the optimum for the documents' length, and
points trained models, one per seed.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.lines import Line2D

from scripts import job
from scripts.anatomy import artifacts, figures

LABELS = {
    "tau": "topics of a document, $\\tau$",
    "topics": "topics, $T$",
    "words_per_topic": "words of a topic, $v$",
    "l2": "L2 weight, $\\lambda$",
    "mask_prob": "selected share, $p_m$",
}
COLOURS = {
    "same topic": figures.PALETTE[2],
    "different topic": figures.PALETTE[3],
    "MASK": figures.PALETTE[0],
    "R": figures.PALETTE[4],
}


def main(snakemake: Any) -> None:
    """Draw all panels."""
    figures.style()
    tables = [artifacts.read_table(path) for path in snakemake.input]
    figure, axes = plt.subplots(
        2, len(tables), figsize=(3.6 * len(tables), 7), squeeze=False, sharey="row"
    )
    for column, table in zip(axes.T, tables, strict=True):
        _draw(column[0], table[table["quantity"] != "R"])
        _draw(column[1], table[table["quantity"] == "R"])
        varies = table["varies"][0]
        for ax in column:
            ax.set_xlabel(LABELS[varies])
            if varies == "l2":
                ax.set_xscale("log")
            elif varies == "tau":
                ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("mean entry of $W_V$ (Theorem 2)")
    axes[1, 0].set_ylabel("attention ratio $R$ (Theorem 3)")
    colours = [Line2D([], [], color=c, lw=4, label=name) for name, c in COLOURS.items()]
    kinds = [
        Line2D([], [], color="black", linestyle="--", label="theorem, infinite documents"),
        Line2D([], [], color="black", label="optimum for 150 words"),
        Line2D([], [], color="black", marker="o", linestyle="", label="trained"),
    ]
    figure.legend(handles=[*colours, *kinds], loc="outside upper center", ncols=7)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, table: pd.DataFrame) -> None:
    if table.empty:
        ax.set_visible(False)
        return
    for quantity, part in table.groupby("quantity", sort=False):
        colour = COLOURS[quantity]
        lines = part.groupby("value")[["theorem", "finite"]].mean()
        ax.plot(lines.index, lines["theorem"], "--", color=colour, linewidth=1.2)
        ax.plot(lines.index, lines["finite"], color=colour)
        ax.plot(part["value"], part["measured"], "o", color=colour, alpha=0.7, markersize=5)
    figures.guide(ax, y=0)


job.run(main, globals())
