"""Draw the ratio of same-topic to different-topic attention of every layer and head."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from scripts import job
from scripts.anatomy import artifacts, figures
from scripts.anatomy.text.settings import ReferenceFilterSettings


def main(snakemake: Any) -> None:
    """Draw one map a model, the mean over LDA fits, and its control on the same scale."""
    figures.style()
    reference = ReferenceFilterSettings.model_validate(snakemake.params.reference)
    names, maps = snakemake.params.models, []
    for path in snakemake.input.heads:
        table = artifacts.read_table(path)
        table = reference.rows(table)
        maps.append([_map(table, kind) for kind in ("trained", "control")])
    off = np.abs(np.concatenate([m.ravel() for m, _ in maps]) - 1)
    spread = max(np.nanquantile(off, 0.98), 0.01) if np.isfinite(off).any() else 0.01
    norm = TwoSlopeNorm(1, vmin=max(0, 1 - spread), vmax=1 + spread)
    tall = sum(1.2 + 0.28 * len(trained) for trained, _ in maps)
    wide = max(m.shape[1] for m, _ in maps)
    figure, axes = plt.subplots(
        len(maps), 2, figsize=(3.5 + 0.62 * wide, 1 + tall), squeeze=False,
        height_ratios=[2 + len(trained) for trained, _ in maps],
    )  # fmt: skip
    for row, name, pair in zip(axes, names, maps, strict=True):
        for ax, values, kind in zip(row, pair, ("trained", "random weights"), strict=True):
            image = ax.imshow(values, cmap="RdBu_r", norm=norm, aspect="auto")
            ax.set(title=f"{name}, {kind}", xlabel="head", ylabel="layer")
            ax.set_yticks(range(0, len(values), 1 + len(values) // 12))
    figure.colorbar(image, ax=axes, label="attention: same topic / different topic", shrink=0.8)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _map(table: pd.DataFrame, weights: str) -> np.ndarray:
    rows = table[table["weights"] == weights]
    return rows.groupby(["layer", "head"])["ratio"].mean().unstack().to_numpy()


job.run(main, globals())
