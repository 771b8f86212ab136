"""Draw how similar the top tokens of parameters that belong together are, layer by layer."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

COLUMNS = {"similarity": "the pair", "shuffled": "partners shuffled in the layer"}


def main(snakemake: Any) -> None:
    """A row a model, a panel a kind of pair."""
    figures.style()
    tables = []
    for name, path in zip(snakemake.params.models, snakemake.input.tables, strict=True):
        table = artifacts.read_table(path)
        tables.append((name, table[table["mode"] == "corrected"]))
    wide = max(table["pair"].nunique() for _, table in tables)
    figure, axes = plt.subplots(
        len(tables), wide, figsize=(1 + 3.1 * wide, 0.8 + 2.7 * len(tables)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for row, (name, table) in zip(axes, tables, strict=True):
        for ax in row:
            ax.set_visible(False)
        for ax, (pair, rows) in zip(row, table.groupby("pair", sort=False), strict=False):
            _draw(ax, rows, name, pair)
        row[0].set_ylabel("Jaccard index of top tokens")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, rows: pd.DataFrame, name: str, pair: str) -> None:
    ax.set_visible(True)
    figures.layer_bars(ax, rows, COLUMNS)
    one, other = (figures.parameter(part) for part in pair.split("-"))
    ax.set_title(f"{name}: {one} and {other}")


job.run(main, globals())
