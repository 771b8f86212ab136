"""Draw how far active parameters show in hidden states, layer by layer, against other documents'.

The figure `hidden` compares with the state after the same layer, `hidden_last` with the last one.
"""

from typing import Any

import matplotlib.pyplot as plt

from scripts import job
from scripts.anatomy import artifacts, figures

COLUMNS = {"aligned": "the token's own state", "random": "state of a token of another document"}
TARGETS = {"hidden": "same", "hidden_last": "last"}


def main(snakemake: Any) -> None:
    """A row a model, a panel a group of parameters."""
    figures.style()
    target = TARGETS[snakemake.wildcards.figure]
    tables = []
    for name, path in zip(snakemake.params.models, snakemake.input.tables, strict=True):
        table = artifacts.read_table(path)
        tables.append((name, table[table["target"] == target]))
    wide = max(table["group"].nunique() for _, table in tables)
    figure, axes = plt.subplots(
        len(tables), wide, figsize=(1 + 3.1 * wide, 0.8 + 2.7 * len(tables)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for row, (name, table) in zip(axes, tables, strict=True):
        for ax in row:
            ax.set_visible(False)
        for ax, (group, rows) in zip(row, table.groupby("group", sort=False), strict=False):
            ax.set_visible(True)
            figures.layer_bars(ax, rows, COLUMNS)
            ax.set_title(f"{name}: {figures.parameter(group)}")
        row[0].set_ylabel("share of the state's top tokens")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
