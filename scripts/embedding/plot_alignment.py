"""Draw which layers of two models go together: scores of all pairs of layers, group by group.

The first row has the scores over tokens as they are. The others have them without what a layer has
in common with all layers of the other model: over tokens, and as controls over raw coordinates and
over tokens in another order, all on one scale. Dots are the layers that a panel's scores match.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

ROWS = {
    ("embedding", "score"): "over tokens,\nmean |correlation|",
    ("embedding", "centred"): "over tokens, less\nlayers' means",
    ("features", "centred"): "raw coordinates, less\nlayers' means",
    ("shuffled", "centred"): "shuffled tokens, less\nlayers' means",
}


def main(snakemake: Any) -> None:
    """A row a measure, a column a group of parameters."""
    figures.style()
    table = artifacts.read_table(snakemake.input.table)
    table = table[table["seed"].isna() | (table["seed"] == table["seed"].min())]
    rows = {key: label for key, label in ROWS.items() if key[0] in {*table["measure"]}}
    groups = table["group"].unique()
    limits = {
        "score": _range(table[table["measure"] == "embedding"]["score"]),
        "centred": _around_zero(table["centred"]),
    }
    figure, axes = plt.subplots(
        len(rows), len(groups), figsize=(2 + 2 * len(groups), 0.8 + 2.3 * len(rows)), squeeze=False,
        sharex=True, sharey=True,
    )  # fmt: skip
    for line, ((measure, column), label) in zip(axes, rows.items(), strict=True):
        colours = "viridis" if column == "score" else "RdBu_r"
        for ax, group in zip(line, groups, strict=True):
            chosen = table[(table["measure"] == measure) & (table["group"] == group)]
            image = _panel(ax, chosen, column, colours, limits[column])
        line[0].set_ylabel(f"{label}\n\nlayer of {snakemake.params.models[0]}")
        figure.colorbar(image, ax=line, shrink=0.9, pad=0.01)
    for ax, group in zip(axes[0], groups, strict=True):
        ax.set_title(figures.parameter(group))
    for ax in axes[-1]:
        ax.set_xlabel(f"layer of {snakemake.params.models[1]}")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _panel(
    ax: plt.Axes, table: pd.DataFrame, column: str, colours: str, limits: tuple[float, float]
) -> Any:
    values = table.pivot(index="layer_a", columns="layer_b", values=column)
    image = ax.imshow(
        values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="nearest"
    )
    matched = table[table["matched" if column == "score" else "matched_centred"]]
    ax.plot(
        matched["layer_b"], matched["layer_a"], "o", color="white", markeredgecolor="black",
        markersize=6,
    )  # fmt: skip
    ax.set_xticks(range(values.shape[1]))
    ax.set_yticks(range(len(values)))
    ax.tick_params(labelsize="x-small", length=0)
    return image


def _range(values: pd.Series) -> tuple[float, float]:
    return values.min(), values.max()


def _around_zero(values: pd.Series) -> tuple[float, float]:
    limit = values.abs().max() or 1.0  # of models with one layer nothing is left
    return -limit, limit


job.run(main, globals())
