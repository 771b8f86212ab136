"""Draw the sweep: topic structure in W_V and in attention under each optimiser and learning rate.

Left: how often a same-topic entry of W_V exceeds a different-topic one (0.5: chance, 1: always).
Right: same-topic over different-topic attention. Points are means over seeds with 95 % intervals.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw both panels."""
    figures.style()
    table = artifacts.read_table(snakemake.input.points)
    cells = (
        table["optimiser"]
        .map(figures.words)
        .str.cat(table["learning_rate"].map(", rate {:g}".format))
    )
    table["cell"] = cells.str.replace("adam", "Adam").str.replace("sgd", "SGD")
    height = 1.8 + 0.5 * table["cell"].nunique()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, height), sharey=True)
    _draw(left, table, "separated")
    figures.guide(left, x=0.5)
    left.set(
        title="Blocks of $W_V$",
        xlabel="share of pairs with the same-topic entry above (0.5: chance)",
    )
    _draw(right, table, "ratio")
    figures.guide(right, x=1)
    right.set(title="Attention", xlabel="same topic / different topic (1: uniform)")
    figures.legend_above(left, ncols=2)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, table: pd.DataFrame, column: str) -> None:
    for offset, colour, (loss, part) in zip(
        (-0.1, 0.1), figures.PALETTE, table.groupby("loss", sort=False), strict=False
    ):
        values = {cell: rows[column].tolist() for cell, rows in part.groupby("cell", sort=False)}
        figures.dots(ax, values, offset=offset, colour=colour, label=figures.words(loss) + " loss")


job.run(main, globals())
