"""Draw tied models that are tested with more or fewer layers than they were trained with.

Accuracy by chain position and number of applications of the layer, mean over seeds. White lines
mark the depth of training.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw one panel per variant."""
    figures.style()
    measured = figures.by_variant(snakemake.params.variants, snakemake.input.metrics)
    figure, axes = plt.subplots(
        1, len(measured), figsize=(1.5 + 4.2 * len(measured), 4.4), squeeze=False
    )
    for ax, layers, (variant, paths) in zip(
        axes[0], snakemake.params.layers, measured.items(), strict=True
    ):
        records = [artifacts.read_json(path).get("iterations", []) for path in paths]
        if not records[0]:
            raise ValueError(f"lego.figures.iterations: {variant} was tested with one depth only")
        accuracy = np.mean([[row["accuracy"] for row in rows] for rows in records], axis=0)
        applied = [row["layers"] for row in records[0]]
        image = ax.imshow(accuracy, origin="lower", cmap="viridis", vmin=0.5, vmax=1, aspect="auto")
        for row, column in np.ndindex(accuracy.shape):
            dark = accuracy[row, column] < 0.8
            ax.text(
                column, row, f"{accuracy[row, column]:.2f}".lstrip("0"), ha="center", va="center",
                fontsize=7, color="white" if dark else "black",
            )  # fmt: skip
        trained = applied.index(layers)
        for edge in (trained - 0.5, trained + 0.5):
            ax.axhline(edge, color="white", linewidth=2)
        ax.set(title=figures.words(variant), xlabel="chain position", ylabel="layers at test")
        ax.set_xticks(range(accuracy.shape[1]))
        ax.set_yticks(range(len(applied)), labels=applied)
    figure.colorbar(image, ax=axes, label="accuracy", shrink=0.9)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
