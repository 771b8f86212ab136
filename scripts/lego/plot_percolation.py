"""Draw the percolation of information: accuracy of linear probes by layer and chain position."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw one panel per variant, mean over seeds; the line is the layer that resolves."""
    figures.style()
    measured = figures.by_variant(snakemake.params.variants, snakemake.input.metrics)
    figure, axes = plt.subplots(
        1, len(measured), figsize=(1.5 + 4.2 * len(measured), 4.4), squeeze=False
    )
    for ax, (variant, paths) in zip(axes[0], measured.items(), strict=True):
        records = [artifacts.read_json(path)["percolation"] for path in paths]
        accuracy = np.mean([record["accuracy"] for record in records], axis=0)
        image = ax.imshow(accuracy, origin="lower", cmap="viridis", vmin=0.5, vmax=1, aspect="auto")
        known = accuracy >= 0.9
        resolved = np.where(known.any(axis=0), known.argmax(axis=0), np.nan)
        ax.plot(resolved, color="white", marker="o", linewidth=1.5)
        ax.set(title=figures.words(variant), xlabel="chain position", ylabel="layer")
        ax.set_xticks(range(accuracy.shape[1]))
        ax.set_yticks(range(accuracy.shape[0]))
    figure.colorbar(image, ax=axes, label="accuracy of a linear probe", shrink=0.9)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
