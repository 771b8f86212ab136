"""Draw the cost of the variants beside base: parameters, operations, time and memory."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

PARTS = {"attention": "attention block of a layer", "encoder": "encoder"}
QUANTITIES = {"flops": "operations", "seconds": "time of a step", "bytes": "memory of a step"}


def main(snakemake: Any) -> None:
    """Draw one row for the attention block and one for the encoder, one panel per quantity."""
    figures.style()
    table = artifacts.read_table(snakemake.input.csv)
    variants = table["variant"].nunique()
    figure, axes = plt.subplots(
        2, 1 + len(QUANTITIES), figsize=(14, 2.2 + 0.85 * variants), sharey=True
    )
    first = table.drop_duplicates("variant")
    by_length = {f"{length} tokens": rows for length, rows in table.groupby("length")}
    for row, (part, title) in zip(axes, PARTS.items(), strict=True):
        column = "attention_parameters" if part == "attention" else "parameters"
        words = "parameters" if part == "attention" else "parameters, with the head"
        _bars(row[0], {None: first}, f"{column}_ratio", words)
        row[0].set_ylabel(title, fontweight="bold")
        for ax, (quantity, words) in zip(row[1:], QUANTITIES.items(), strict=True):
            _bars(ax, by_length, f"{part}_{quantity}_ratio", words)
    for ax in axes[-1]:
        ax.set_xlabel(f"relative to {first['variant'].iloc[0]}")
    figures.legend_above(axes[0, 1], ncols=4)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _bars(ax: plt.Axes, tables: dict[str | None, pd.DataFrame], column: str, title: str) -> None:
    """Draw a bar for every variant and table with its value; the line is the first variant."""
    thickness = 0.8 / len(tables)
    shifts = figures.offsets(len(tables), thickness)
    for number, (shift, (label, rows)) in enumerate(zip(shifts, tables.items(), strict=True)):
        indices = [index + shift for index in range(len(rows))]
        # grey, since these bars belong to no length
        colour = "0.4" if label is None else figures.PALETTE[number]
        bars = ax.barh(indices, rows[column], thickness, label=label, color=colour)
        ax.bar_label(bars, fmt="%.2f", label_type="center", fontsize=8, color="white")
    names = [
        f"{figures.words(name)} ({split})"
        for name, split in zip(rows["variant"], rows["split"], strict=True)
    ]
    ax.set_yticks(range(len(names)), labels=names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.axvline(1, color="black", linewidth=0.8)
    ax.set_title(title)
    ax.set_xticks([0, 0.5, 1])
    ax.margins(x=0.08)


job.run(main, globals())
