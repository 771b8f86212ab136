"""Draw mean attention by pair class for every run whose attention is trained, and its table.

The table corresponds to the paper's attention table on synthetic data: same word and same topic are
above different topic, under every loss and optimiser. Weights are length-debiased and divided by
the uniform weight.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Write the table and draw the figure."""
    reference = snakemake.params.reference_length
    rows = []
    for path in map(Path, snakemake.input):
        metrics = artifacts.read_json(path)
        corpus, variant, seed = path.parts[-4:-1]
        means = {k: metrics["attention"][k] for k in ("same_word", "same_topic", "different_topic")}
        rows.append(
            {"corpus": corpus, "variant": variant, "seed": seed.removeprefix("seed")}
            | {name: weight * reference for name, weight in means.items()}
            | {"ratio": metrics["attention"]["ratio"], "R": metrics["attention"].get("R")}
        )
    table = pd.DataFrame(rows)
    artifacts.write_table(snakemake.output.table, table)
    figures.style()
    runs = {
        f"{figures.words(variant)}, {corpus}": part
        for (corpus, variant), part in table.groupby(["corpus", "variant"], sort=False)
    }
    figure, ax = plt.subplots(figsize=(9, 1.5 + 0.5 * len(runs)))
    offsets = (-0.2, 0, 0.2)
    for offset, (name, colour) in zip(offsets, figures.CLASS_COLOURS.items(), strict=True):
        values = {run: part[name.replace(" ", "_")].tolist() for run, part in runs.items()}
        figures.dots(ax, values, offset=offset, colour=colour, label=name)
    figures.guide(ax, x=1)
    ax.set(xlim=(0, None), xlabel="mean attention weight / uniform weight")
    ax.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=3)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
