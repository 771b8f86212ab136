"""Draw the counting shortcut and what prevents it.

Left: agreement of the last variable's prediction with counting, where counting is wrong in half of
the cases (1: always counts, 0.5: never). Right: accuracy at that variable, undefined where the
chain is cut.
"""

from typing import Any

import matplotlib.pyplot as plt

from scripts import job
from scripts.anatomy import artifacts, figures

TESTS = {
    "branch": "last clause moved",
    "two_chains": "another chain beside it",
    "severed": "chain cut",
}


def main(snakemake: Any) -> None:
    """Draw one row per variant."""
    figures.style()
    records = {
        figures.words(variant): [artifacts.read_json(path).get("shortcut", {}) for path in paths]
        for variant, paths in figures.by_variant(
            snakemake.params.variants, snakemake.input.metrics
        ).items()
    }
    figure, axes = plt.subplots(1, 2, figsize=(12, 1.8 + 0.55 * len(records)), sharey=True)
    for ax, measure in zip(axes, ("agreement", "accuracy"), strict=True):
        for offset, colour, (test, label) in zip(
            (-0.2, 0.0, 0.2), figures.PALETTE, TESTS.items(), strict=False
        ):
            values = {
                variant: [one.get(f"{test}_{measure}", float("nan")) for one in of_seeds]
                for variant, of_seeds in records.items()
            }
            figures.dots(ax, values, offset=offset, colour=colour, label=label)
        figures.guide(ax, x=0.5)
        ax.set_xlim(0.3, 1.03)
    axes[0].set(title="Agreement with the shortcut", xlabel="share (0.5: none, 1: only counts)")
    axes[1].set(title="Accuracy", xlabel="share (0.5: chance)")
    figures.legend_above(axes[0], ncols=3)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


job.run(main, globals())
