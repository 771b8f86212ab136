"""Draw the ratio of same-topic to different-topic attention of every model.

Trained weights beside three baselines: random initial weights, topics shuffled among the words, and
the ratio that the distances between words predict.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures
from scripts.anatomy.text.settings import ReferenceFilterSettings

PAPER = (1.12, 1.70)  # Li, Li & Risteski: lowest and highest over their models and settings
KINDS = {
    "trained": "trained",
    "by_distance": "predicted by distance alone",
    "shuffled": "trained, topics shuffled",
    "control": "random initial weights",
}


def main(snakemake: Any) -> None:
    """Draw one panel a corpus, one row a model."""
    figures.style()
    reference = ReferenceFilterSettings.model_validate(snakemake.params.reference)
    table = artifacts.read_table(snakemake.input.table)
    table = reference.rows(table)
    corpora = table["corpus"].unique()
    height = 2.2 + 0.8 * table["model"].nunique()
    figure, axes = plt.subplots(
        1, len(corpora), figsize=(1 + 5 * len(corpora), height), sharey=True, squeeze=False
    )
    for ax, corpus in zip(axes[0], corpora, strict=True):
        _draw(ax, table[table["corpus"] == corpus])
        ax.set(title=corpus, xlabel="attention: same topic / different topic")
    figures.legend_above(axes[0, 0], ncols=3)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, table: pd.DataFrame) -> None:
    ax.axvspan(*PAPER, color="grey", alpha=0.15, linewidth=0, label="range in the paper")
    figures.guide(ax, x=1)
    trained = table[table["weights"] == "trained"]
    distance = trained.assign(weights="by_distance", ratio=trained["ratio_by_distance"])
    table = pd.concat([table, distance])
    shifts = figures.offsets(len(KINDS), 0.16)
    for shift, colour, (kind, label) in zip(shifts, figures.PALETTE, KINDS.items(), strict=False):
        rows = table[table["weights"] == kind]
        values = {model: part["ratio"].tolist() for model, part in rows.groupby("model")}
        figures.dots(ax, values, offset=shift, colour=colour, label=label)


job.run(main, globals())
