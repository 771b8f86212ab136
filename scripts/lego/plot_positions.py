"""Draw final accuracy along the graph, one line per variant, for several graphs or depths.

Positions are steps from the root; on a chain they are chain positions. Whiskers are 95 % intervals
over seeds. Dotted lines are the counting baseline of each task. Open points are unsupervised.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from scripts import job
from scripts.anatomy import artifacts, figures
from scripts.anatomy.statistics import mean_interval


def main(snakemake: Any) -> None:
    """Draw all variants in one panel."""
    figures.style()
    measured = figures.by_variant(snakemake.params.variants, snakemake.input.metrics)
    figure, ax = plt.subplots(figsize=(9, 4.6))
    labelled: set[tuple[float, ...]] = set()
    for index, (variant, paths) in enumerate(measured.items()):
        records = [artifacts.read_json(path) for path in paths]
        shift = 0.06 * (index - (len(measured) - 1) / 2)  # so that whiskers do not overlap
        _line(ax, records, shift, figures.PALETTE[index % len(figures.PALETTE)], variant)
        baseline = tuple(records[0]["counting_baseline"])
        if baseline not in labelled and records[0]["chain"]:
            ax.plot(
                baseline, color="grey", linestyle=":", label=None if labelled else "counting alone"
            )
            labelled.add(baseline)
    ax.set(xlabel="steps from the root", ylabel="accuracy", ylim=(0, 1.02))
    ax.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _line(
    ax: plt.Axes, records: list[dict[str, Any]], shift: float, colour: object, variant: str
) -> None:
    accuracy = np.array([record["by_depth"] for record in records])
    mean, low, high = np.array([mean_interval(column) for column in accuracy.T]).T
    steps = np.arange(len(mean))
    supervised = set(records[0]["supervised"])
    open_points = records[0]["chain"] and len(supervised) < len(mean)
    filled = [colour if not open_points or step in supervised else "white" for step in steps]
    reach = [mean - low.clip(min=0), high.clip(max=1) - mean]
    ax.errorbar(
        steps + shift, mean, yerr=reach, color=colour, capsize=2, label=figures.words(variant)
    )
    ax.scatter(steps + shift, mean, color=filled, edgecolors=[colour], zorder=3)


job.run(main, globals())
