"""Draw when in training models of different seeds come to be alike in vocabulary space."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

MEASURES = {
    "embedding": "over tokens",
    "shuffled": "over shuffled tokens",
    "features": "over raw coordinates",
}
NOT_GROUPS = {"all", "blocks"}
LESS_MEANS = "mean |correlation|,\nless means over others"
PANELS = {  # title, which rows of the table, which column, its label
    "parameters of all layers": ("all", "mean", "mean |correlation|"),
    "layers of the same depth": ("all", "same_depth_contrast", LESS_MEANS),
    "the same group and layer": ("blocks", "same_depth_contrast", ""),
    "groups of layers\nmatched with the same": ("blocks", "right_share", "share"),
}


def main(snakemake: Any) -> None:
    """A panel a number, a curve a measure; bands are over pairs of seeds."""
    figures.style()
    whole = artifacts.read_table(snakemake.input.table)
    figure, axes = plt.subplots(1, len(PANELS), figsize=(16, 4))
    for ax, (title, (group, column, label)) in zip(axes, PANELS.items(), strict=True):
        table = whole[whole["group"] == group]
        for colour, (measure, name) in zip(figures.PALETTE, MEASURES.items(), strict=False):
            rows = table[table["measure"] == measure]
            figures.band(ax, rows, column, label=name, colour=colour, marker=".")
        ax.set(title=title, ylabel=label, xlabel="training steps")
        _log_with_start(ax, table["step"])
    embedding = whole[(whole["measure"] == "embedding") & (whole["group"] == "all")]
    figures.band(
        axes[0], embedding, "chance", label="random vectors, over tokens", colour="grey",
        linestyle="--",
    )  # fmt: skip
    for ax in axes[1:3]:
        ax.axhline(0, color="grey", linewidth=0.8)
    by_chance = 1 / (whole["layers"].max() * (whole["group"].nunique() - len(NOT_GROUPS)))
    axes[3].axhline(by_chance, color="grey", linestyle=":", label="matched at random")
    handles = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=5)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _log_with_start(ax: plt.Axes, steps: pd.Series) -> None:
    """A logarithmic axis that has a place for step 0."""
    ax.set_xscale("symlog", linthresh=max(steps[steps > 0].min(), 1))
    ax.set_xlim(0, steps.max() * 1.1)


job.run(main, globals())
