"""Draw an atlas of heads: layer by head maps of what can be read from their matrices alone."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

PANELS = {
    ("VO", "identity"): ("writes the token itself", "share of rows", "viridis", (0, None)),
    ("VO", "copying_score"): ("copying score of $W_{VO}$", "score", "RdBu_r", (-1, 1)),
    ("VO", "effective_rank"): ("effective rank of $W_{VO}$", "rank", "viridis", (1, None)),
    ("QK", "identity"): ("attends to the token itself", "share of rows", "viridis", (0, None)),
    ("QK", "copying_score"): ("copying score of $W_{QK}$", "score", "RdBu_r", (-1, 1)),
    ("QK", "effective_rank"): ("effective rank of $W_{QK}$", "rank", "viridis", (1, None)),
}


def main(snakemake: Any) -> None:
    """Two rows of panels a model: what its heads write, and where they attend."""
    figures.style()
    models = list(zip(snakemake.params.models, snakemake.input.tables, strict=True))
    figure, axes = plt.subplots(
        2 * len(models), 3, figsize=(14, 3.6 * 2 * len(models)), squeeze=False
    )
    for place, (name, path) in enumerate(models):
        table = artifacts.read_table(path)
        panels = axes[2 * place : 2 * place + 2].ravel()
        for ax, ((matrix, column), look) in zip(panels, PANELS.items(), strict=True):
            _draw(ax, table[table["matrix"] == matrix], column, name, *look)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(
    ax: plt.Axes,
    table: pd.DataFrame,
    column: str,
    model: str,
    title: str,
    label: str,
    colours: str,
    limits: tuple[float, float | None],
) -> None:
    values = table.pivot(index="layer", columns="head", values=column)
    image = ax.imshow(
        values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="nearest"
    )
    ax.set(title=f"{model}: {title}", xlabel="head", ylabel="layer")
    ax.set_xticks(range(values.shape[1]), labels=values.columns)
    ax.set_yticks(range(len(values)), labels=values.index)
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.9)


job.run(main, globals())
