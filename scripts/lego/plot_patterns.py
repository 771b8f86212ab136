"""Draw the most associative and the most manipulative head of a pretrained model, and all heads.

The sentence is in chain order. Nothing has been trained on the task.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.gridspec import GridSpec

from scripts import job
from scripts.anatomy import artifacts, figures

PANELS = {"association_on_variables": "association", "manipulation": "manipulation"}


def main(snakemake: Any) -> None:
    """Draw two large maps above small ones of all heads."""
    figures.style()
    maps = artifacts.read_tensors(snakemake.input.maps[0])["maps"]
    words = artifacts.read_metadata(snakemake.input.maps[0])["words"].split(" ")
    table = artifacts.read_table(snakemake.input.heads[0])
    table = table[table["weights"] == "trained"]
    layers, heads = maps.shape[:2]
    figure = plt.figure(figsize=(14, 8 + 1.1 * layers))
    upper, lower = figure.subfigures(2, 1, height_ratios=[7, 1.1 * layers])
    for ax, (score, name) in zip(upper.subplots(1, 2), PANELS.items(), strict=True):
        best = table.loc[table[score].idxmax()]
        _large(ax, maps[int(best["layer"]), int(best["head"])], words)
        ax.set_title(
            f"{snakemake.params.model}, {name}: layer {best['layer']}, head {best['head']} "
            f"({best[score]:.2f})"
        )
    grid = GridSpec(layers, heads, figure=lower)
    for layer, head in np.ndindex(layers, heads):
        ax = lower.add_subplot(grid[layer, head])
        ax.imshow(np.sqrt(maps[layer, head]), cmap="viridis", vmin=0, vmax=1)
        ax.set_xticks([])
        ax.set_yticks([])
        if head == 0:
            ax.set_ylabel(f"layer {layer}", fontsize="small")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _large(ax: plt.Axes, weights: np.ndarray, words: list[str]) -> None:
    ax.imshow(np.sqrt(weights), cmap="viridis", vmin=0, vmax=1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(range(len(words)), labels=map(figures.plain, words), fontsize=6)
    ax.tick_params(axis="x", rotation=90)
    ax.set(xlabel="attended to", ylabel="from")


job.run(main, globals())
