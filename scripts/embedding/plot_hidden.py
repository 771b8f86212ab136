"""Draw how far active parameters show in hidden states, layer by layer, against other documents'.

The figure `hidden` compares with the state after the same layer, `hidden_last` with the last one.
"""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts, figures

COLUMNS = {"aligned": "the token's own state", "random": "state of a token of another document"}
TARGETS = {"hidden": "same", "hidden_last": "last"}


def main(snakemake: Any) -> None:
    """A row a model, a panel a group of parameters."""
    figures.style()
    target = TARGETS[snakemake.params.figure]
    tables = {}
    for name, path in zip(snakemake.params.models, snakemake.input.tables, strict=True):
        table = artifacts.read_table(path)
        tables[name] = table[table["target"] == target]
    figure = figures.layer_panels(
        tables,
        "group",
        COLUMNS,
        title=figures.parameter,
        ylabel="share of the state's top tokens",
    )
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
