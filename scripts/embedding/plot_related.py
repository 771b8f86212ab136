"""Draw how similar the top tokens of parameters that belong together are, layer by layer."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts, figures

COLUMNS = {"similarity": "the pair", "shuffled": "partners shuffled in the layer"}


def main(snakemake: Any) -> None:
    """A row a model, a panel a kind of pair."""
    figures.style()
    tables = {}
    for name, path in zip(snakemake.params.models, snakemake.input.tables, strict=True):
        table = artifacts.read_table(path)
        tables[name] = table[table["mode"] == "corrected"]
    figure = figures.layer_panels(
        tables, "pair", COLUMNS, title=_title, ylabel="Jaccard index of top tokens"
    )
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _title(pair: str) -> str:
    return " and ".join(map(figures.parameter, pair.split("-")))


job.run(main, globals())
