"""Draw the final loss of each variant minus that of base, seed by seed.

The panels are over all targets, over those visible elsewhere in their row, which association could
help with, and over the others.
"""

from typing import Any

import matplotlib.pyplot as plt

from scripts import job
from scripts.anatomy import artifacts, figures

PANELS = {
    "loss": "all targets",
    "loss_repeated": "seen elsewhere in the row",
    "loss_new": "not seen elsewhere",
}


def main(snakemake: Any) -> None:
    """Draw one panel per kind of targets; dots are means, whiskers 95 % intervals over seeds."""
    figures.style()
    variants = snakemake.params.variants
    base, *others = (
        [artifacts.read_json(path) for path in paths]
        for paths in figures.by_variant([*variants], snakemake.input.metrics).values()
    )
    names = [f"{figures.words(name)} ({split})" for name, split in variants.items()][1:]
    height = 1.5 + 0.45 * len(names)
    figure, axes = plt.subplots(1, len(PANELS), figsize=(14, height), sharey=True)
    for ax, (metric, title) in zip(axes, PANELS.items(), strict=True):
        differences = {
            name: [one[metric] - of_base[metric] for one, of_base in zip(runs, base, strict=True)]
            for name, runs in zip(names, others, strict=True)
        }
        ax.axvline(0, color="0.3", linewidth=1)
        figures.dots(ax, differences, colour=figures.PALETTE[0])
        ax.set(title=title, xlabel="loss minus that of base (nats)")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
