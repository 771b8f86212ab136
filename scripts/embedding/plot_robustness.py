"""Draw what keeping k coordinates leaves of inner products: E^T solid, E+ dashed (Appendix A)."""

from typing import Any

import matplotlib.pyplot as plt

from scripts import job
from scripts.anatomy import artifacts, figures

STYLES = {"E^T": "-", "E+": "--"}
LABELS = {"E^T": "$E^T$", "E+": "$E^+$"}


def main(snakemake: Any) -> None:
    """A panel a model, a colour a kind of vectors."""
    figures.style()
    names = snakemake.params.models
    figure, axes = plt.subplots(
        1, len(names), figsize=(1 + 5.5 * len(names), 5), sharey=True, squeeze=False
    )
    for ax, name, path in zip(axes[0], names, snakemake.input.tables, strict=True):
        table = artifacts.read_table(path)
        kinds = table["vectors"].unique()
        for kind, colour in zip(kinds, figures.PALETTE, strict=False):
            for inverse, line in STYLES.items():
                rows = table[(table["vectors"] == kind) & (table["inverse"] == inverse)]
                label = f"{kind}, {LABELS[inverse]}"
                figures.band(
                    ax,
                    rows,
                    "cosine",
                    x="k",
                    label=label,
                    colour=colour,
                    linestyle=line,
                    marker=".",
                )
        ax.set(title=name, xlabel="coordinates kept, k", xscale="log")
        figures.guide(ax, y=1)
    axes[0, 0].set_ylabel("cosine with the true inner products\n(pairs of different vectors)")
    figures.legend_above(axes[0, 0], ncols=4)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
