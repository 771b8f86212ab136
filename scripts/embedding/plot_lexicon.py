"""Draw the share of sentiment words among the top tokens of differences, by group and layer."""

from typing import Any

import numpy as np

from scripts import job
from scripts.anatomy import artifacts, figures

COLUMNS = {
    "D": "what fine-tuning changed",
    "signs": "the same with random signs",
    "random": "random directions",
    "before": "the parameter before",
}


def main(snakemake: Any) -> None:
    """A row a run, a panel a group of parameters, the linear layer left out."""
    figures.style()
    tables = {}
    for name, path in zip(snakemake.params.runs, snakemake.input.tables, strict=True):
        table = artifacts.read_table(path)
        tables[name] = table[table["layer"] >= 0]
    figure = figures.layer_panels(
        tables,
        "group",
        COLUMNS,
        title=figures.parameter,
        ylabel="share of sentiment words",
    )
    for row in np.array(figure.axes).reshape(len(tables), -1):  # groups are to be compared
        top = max(ax.get_ylim()[1] for ax in row if ax.get_visible())
        for ax in row:
            ax.set_ylim(0, top)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
