"""Draw the two scores of every head of pretrained models, beside those at random weights."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

SCORES = {
    "association_on_variables": "association: attention on the same letter",
    "manipulation": "manipulation: attention within two positions",
}


def main(snakemake: Any) -> None:
    """Draw one row per model: both scores, trained and at random weights."""
    figures.style()
    models = list(zip(snakemake.params.models, snakemake.input.heads, strict=True))
    figure, axes = plt.subplots(
        len(models), 4, figsize=(17, 0.8 + 3.4 * len(models)), squeeze=False
    )
    for row, (name, path) in zip(axes, models, strict=True):
        table = artifacts.read_table(path)
        for index, (score, title) in enumerate(SCORES.items()):
            for ax, weights in zip(row[2 * index :], ("trained", "control"), strict=False):
                image = _draw(ax, table, score, weights)
                ax.set_title(f"{name}, {'trained' if weights == 'trained' else 'random weights'}")
            figure.colorbar(image, ax=row[2 * index + 1], label=title)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, table: pd.DataFrame, score: str, weights: str) -> Any:
    rows = table[table["weights"] == weights]
    values = rows.pivot_table(index="layer", columns="head", values=score)
    ax.set(xlabel="head", ylabel="layer")
    return ax.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")


job.run(main, globals())
