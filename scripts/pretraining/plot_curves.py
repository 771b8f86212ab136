"""Draw the validation loss during pretraining by steps, operations and time.

Operations are counted. Time is the number of steps multiplied by the time of one step, measured for
all variants in turn. Dotted lines are the baselines without context: token frequencies alone, and
with the token at the masked position.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures

AXES = {"step": "step", "flops": "floating-point operations", "seconds": "seconds"}
LINES = {"unigram": "frequencies alone", "no_context": "no context"}
COLOURS = 4  # further variants repeat them, dashed


def main(snakemake: Any) -> None:
    """Draw one curve per variant; bands show the spread over seeds."""
    figures.style()
    inp, params = snakemake.input, snakemake.params
    histories = figures.by_variant(params.variants, inp.history)
    seconds = artifacts.read_json(inp.seconds)["seconds"]
    figure, axes = plt.subplots(1, len(AXES), figsize=(15, 5), sharey=True)
    for index, (variant, paths) in enumerate(histories.items()):
        table = pd.concat([artifacts.read_table(path) for path in paths])
        table = table.assign(seconds=table["step"] * seconds[variant])
        look = {
            "colour": figures.PALETTE[index % COLOURS],
            "linestyle": "--" if index >= COLOURS else "-",
            "label": figures.words(variant),
        }
        for ax, x in zip(axes, AXES, strict=True):
            figures.band(ax, table, "loss", x=x, **look)
    baseline = artifacts.read_json(inp.baseline)
    for ax, label in zip(axes, AXES.values(), strict=True):
        _lines(ax, baseline)
        ax.set(xlabel=label, xlim=(0, None))
    lowest = axes[0].get_ylim()[0]
    # the first steps start far above the frequency baseline, so they are cut off
    highest = baseline["unigram"] + 0.5
    if lowest < baseline["unigram"]:
        axes[0].set_ylim(lowest, highest)
    axes[0].set_ylabel("validation loss (nats)")
    figures.legend_above(axes[0], ncols=4, fontsize="small")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _lines(ax: plt.Axes, baseline: dict[str, float]) -> None:
    """Draw the baselines without context."""
    for name, words in LINES.items():
        ax.axhline(baseline[name], color="0.3", linewidth=1, linestyle=":")
        ax.annotate(
            words, (1, baseline[name]), xycoords=("axes fraction", "data"), ha="right",
            va="bottom", fontsize="x-small", color="0.3",
        )  # fmt: skip


job.run(main, globals())
