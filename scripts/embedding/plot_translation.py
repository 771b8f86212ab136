"""Draw the accuracy of translated classifiers: by cut, and at the chosen cut with intervals."""

from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scripts import job
from scripts.anatomy import artifacts, figures

# What each way is called, and in which colour and line it is drawn: variants in colour, what is
# fitted to data dashed, what translates nothing in grey.
WAYS = {
    "plain": ("translated", figures.PALETTE[0], "-"),
    "positions": ("with positions", figures.PALETTE[2], "-"),
    "final_norm": ("with the last norm", figures.PALETTE[4], "-"),
    "published": ("with both", figures.PALETTE[5], "-"),
    "differences": ("differences only", figures.PALETTE[1], "-"),
    "identity": ("no kernel", figures.PALETTE[3], "-"),
    "least_squares": ("fitted kernel", figures.PALETTE[8], "--"),
    "probe": ("probe of the lower model", figures.PALETTE[6], "--"),
    "permuted": ("other order of tokens", "0.15", ":"),
    "random_kernel": ("random kernel", "0.4", ":"),
    "random_blocks": ("random layers", "0.6", ":"),
    "before": ("layers before fine-tuning", "0.75", ":"),
}


def main(snakemake: Any) -> None:
    """A row a pair: curves over the cut on the left, the test on the right."""
    figures.style()
    pairs = snakemake.params.pairs  # the lower model and the upper run, by name of the pair
    figure, axes = plt.subplots(
        len(pairs), 2, figsize=(11.5, 0.6 + 4.2 * len(pairs)), squeeze=False
    )
    inp = snakemake.input
    for row, (name, of), path, summary in zip(
        axes, pairs.items(), inp.tables, inp.summaries, strict=True
    ):
        table = artifacts.read_table(path)
        record = artifacts.read_json(summary)
        _curves(
            row[0],
            table[table["part"] == "validation"],
            f"{figures.words(name)}: {of[0]} into {of[1]}",
        )
        _tested(row[1], record)
        chance = {"color": "grey", "linewidth": 0.8, "zorder": 0}
        row[0].axhline(0.5, **chance)
        row[1].axvline(0.5, **chance)
    for ax in axes[:, 0]:  # pairs are to be compared
        ax.set_ylim(*_reach(other.get_ylim() for other in axes[:, 0]))
    for ax in axes[:, 1]:
        ax.set_xlim(*_reach(other.get_xlim() for other in axes[:, 1]))
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _reach(limits: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """From the lowest to the highest limit."""
    lows, highs = zip(*limits, strict=True)
    return min(lows), max(highs)


def _curves(ax: Axes, table: pd.DataFrame, title: str) -> None:
    """The mean over runs by cut, with the range of the runs for the translation itself."""
    for way, (label, colour, line) in WAYS.items():
        rows = table[table["way"] == way]
        if rows.empty:
            continue
        style = {"colour": colour, "linestyle": line, "label": label}
        if way == "plain":
            figures.band(ax, rows, "accuracy", x="cut", marker="o", linewidth=2.5, **style)
        else:
            mean = rows.groupby("cut")["accuracy"].mean()
            ax.plot(mean.index, mean, color=colour, linestyle=line, marker=".", label=label)
    ax.set(title=title, xlabel="layers of the lower model", ylabel="accuracy (validation texts)")
    ax.xaxis.get_major_locator().set_params(integer=True)


def _tested(ax: Axes, record: dict[str, Any]) -> None:
    """Each way's accuracy on the test texts, the fine-tuned model's first."""
    values = {"fine-tuned model itself": record["upper"]["accuracy"]}
    colours = ["black"]
    for way, (label, colour, _) in WAYS.items():
        if way in record["ways"]:
            values[label] = record["ways"][way]["accuracy"]
            colours.append(colour)
    for place, (colour, (label, of_runs)) in enumerate(zip(colours, values.items(), strict=True)):
        figures.dots(ax, {label: of_runs}, offset=place, colour=colour)
        ax.plot(of_runs, np.full(len(of_runs), place), "|", color=colour, markersize=9)
    ax.set_yticks(range(len(values)), labels=list(values))
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.set(title="at the chosen cut", xlabel="accuracy (test texts)")


job.run(main, globals())
