"""Draw training from near zero: norms, blocks of W_V, attention and loss over the steps.

The paper's two stages: W_V grows first while attention stays uniform, then W_K and W_Q grow. Each
row of panels is a variant; lines are means over seeds, bands their range.
"""

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw all panels."""
    figures.style()
    names = snakemake.params.variants
    dynamics = figures.by_variant(names, snakemake.input.dynamics)
    panels: dict[str, Callable[[plt.Axes, pd.DataFrame], None]] = {
        "Frobenius norm / its last value": _norms,
        "mean entry of $W_V$": _blocks,
        "attention / uniform": _attention,
        "held-out loss": _loss,
    }
    figure, axes = plt.subplots(
        len(names), len(panels), figsize=(4.2 * len(panels), 2.7 * len(names)), squeeze=False,
        sharex="row",
    )  # fmt: skip
    for row, name in enumerate(names):
        table = pd.concat(artifacts.read_table(path) for path in dynamics[name])
        for column, (title, draw) in enumerate(panels.items()):
            ax = axes[row, column]
            draw(ax, table)
            ax.set_xscale("symlog", linthresh=10)
            ax.set_xlim(0, table["step"].max())
            if row == 0:
                ax.set_title(title)
                if column < 3:
                    ax.legend(fontsize="small")
            if row == len(names) - 1:
                ax.set_xlabel("step")
        axes[row, 0].set_ylabel(
            figures.words(name).replace(" SGD", "\nSGD").replace(" Adam", "\nAdam")
        )
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _norms(ax: plt.Axes, table: pd.DataFrame) -> None:
    for colour, W in zip(figures.PALETTE, ("W_V", "W_K", "W_Q"), strict=False):
        last = table.loc[table["step"] == table["step"].max(), f"norm_{W}"].mean()
        scaled = table.assign(share=table[f"norm_{W}"] / last)
        style = "--" if W == "W_Q" else "-"
        figures.band(ax, scaled, "share", label=f"${W}$", colour=colour, linestyle=style)
    figures.guide(ax, y=0.8)
    ax.set_ylim(0, 1.1)


def _blocks(ax: plt.Axes, table: pd.DataFrame) -> None:
    for name, column in (("same topic", "same_with_diagonal"), ("different topic", "different")):
        colour = figures.CLASS_COLOURS[name]
        figures.band(ax, table, f"value_{column}", label=name, colour=colour)


def _attention(ax: plt.Axes, table: pd.DataFrame) -> None:
    uniform = table.loc[table["step"] == 0, "attention_different_topic"].mean()
    for name, colour in figures.CLASS_COLOURS.items():
        scaled = table.assign(share=table["attention_" + name.replace(" ", "_")] / uniform)
        figures.band(ax, scaled, "share", label=name, colour=colour)
    figures.guide(ax, y=1)
    ax.set_ylim(0, max(2, ax.get_ylim()[1]))


def _loss(ax: plt.Axes, table: pd.DataFrame) -> None:
    figures.band(ax, table, "validation_loss", colour="black")


job.run(main, globals())
