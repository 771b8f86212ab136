"""Draw how much more attention falls on words of the same topic, model by model.

Trained weights against the three baselines: the same architecture at its random start, the topics
dealt anew among the words, and what the words' distances alone would give.
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
    "by_distance": "what distances alone would give",
    "shuffled": "trained, topics shuffled",
    "control": "random initial weights",
}


def main(snakemake: Any) -> None:
    """One panel a corpus, one row a model."""
    figures.style()
    reference = ReferenceFilterSettings.model_validate(snakemake.params.reference)
    table = artifacts.read_table(snakemake.input.table)
    table = reference.rows(table)
    corpora = table["corpus"].unique()
    height = 2.2 + 0.8 * table["model"].nunique()
    figure, axes = plt.subplots(
        1, len(corpora), figsize=(1 + 5 * len(corpora), height), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax, corpus in zip(axes[0], corpora, strict=True):
        _draw(ax, table[table["corpus"] == corpus])
        ax.set(title=corpus, xlabel="attention: same topic / different topic")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _draw(ax: plt.Axes, table: pd.DataFrame) -> None:
    ax.axvspan(*PAPER, color="grey", alpha=0.15, linewidth=0, label="range in the paper")
    ax.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    trained = table[table["weights"] == "trained"]
    distance = trained.assign(weights="by_distance", ratio=trained["ratio_by_distance"])
    table = pd.concat([table, distance])
    for place, (kind, label) in enumerate(KINDS.items()):
        rows = table[table["weights"] == kind]
        values = {model: part["ratio"].tolist() for model, part in rows.groupby("model")}
        offset = 0.16 * (place - (len(KINDS) - 1) / 2)
        figures.dots(ax, values, offset=offset, colour=figures.PALETTE[place], label=label)


job.run(main, globals())
