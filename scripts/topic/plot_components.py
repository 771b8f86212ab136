"""Draw topic structure in the embeddings and in the attention of each model.

compensation: a BERT with attention or embeddings frozen; architectures: from the
compact model to real BERTs. The last row is the control, a BERT before training. Points are means
over seeds with 95 % intervals.
"""

from typing import Any

import matplotlib.pyplot as plt

from scripts import job
from scripts.anatomy import artifacts, figures


def main(snakemake: Any) -> None:
    """Draw both panels."""
    figures.style()
    paths_of = figures.by_variant(snakemake.params.variants, snakemake.input.metrics)
    metrics = {
        figures.words(name): [artifacts.read_json(path) for path in paths]
        for name, paths in paths_of.items()
    }
    control = next((name for name, runs in metrics.items() if "untrained" in runs[0]), None)
    if control:
        metrics[f"{control}, untrained"] = [run["untrained"] for run in metrics[control]]
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 1.6 + 0.9 * len(metrics)), sharey=True)
    _embeddings(left, metrics)
    _attention(right, metrics, snakemake.params.reference_length)
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _embeddings(ax: plt.Axes, metrics: dict[str, list[dict]]) -> None:
    for name, key in (("same topic", "same"), ("different topic", "different")):
        values = {
            variant: [run["embedding"]["cosine"][key] for run in runs if "embedding" in run]
            or [float("nan")]
            for variant, runs in metrics.items()
        }
        figures.dots(ax, values, colour=figures.CLASS_COLOURS[name], label=name)
    for row, runs in enumerate(metrics.values()):
        if "embedding" not in runs[0]:
            ax.text(0.5, row, "frozen one-hot", ha="center", va="center", color="grey")
    figures.guide(ax, x=0)
    ax.set(xlim=(-0.3, 1.05), title="Embeddings", xlabel="mean cosine between words")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=2)


def _attention(ax: plt.Axes, metrics: dict[str, list[dict]], uniform: int) -> None:
    for offset, (name, colour) in zip((-0.15, 0, 0.15), figures.CLASS_COLOURS.items(), strict=True):
        values = {
            variant: [uniform * run["attention"][name.replace(" ", "_")] for run in runs]
            for variant, runs in metrics.items()
        }
        figures.dots(ax, values, offset=offset, colour=colour, label=name)
    figures.guide(ax, x=1)
    ax.set(title="Attention", xlabel="mean weight / uniform weight")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=3)


job.run(main, globals())
