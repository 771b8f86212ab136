"""Draw the task: a sentence with its dependency graph, and the counting baselines by position."""

from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns

from scripts import job
from scripts.anatomy import artifacts, figures, seeding
from scripts.anatomy.lego import graphs, groups, tasks

CLAUSES = 6


def main(snakemake: Any) -> None:
    """Draw the example above the baselines."""
    figures.style()
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(12, 7), height_ratios=[1, 1.4])
    _sentence(upper)
    tasks = snakemake.params.tasks
    for (name, settings), path, colour in zip(
        tasks.items(), snakemake.input.baselines, sns.color_palette("colorblind"), strict=False
    ):
        accuracy = artifacts.read_json(path)["accuracy"]
        group = settings["group"]
        if not isinstance(group, str):  # a table in the configuration
            group = figures.plain(" ".join(group["names"]))
        label = f"{figures.words(name)} ({group}, n = {settings['n']})"
        lower.plot(accuracy, marker="o", label=label, color=colour)
    lower.set(
        title="Counting baseline",
        xlabel="chain position",
        ylabel="best accuracy by counting",
    )
    figure.legend(*lower.get_legend_handles_labels(), loc="outside right center")
    figures.save(figure, snakemake.output.png, snakemake.output.svg)


def _sentence(ax: plt.Axes) -> None:
    """Draw a shuffled sentence of signs: clauses as boxes, arrows from a variable to its use."""
    group = groups.built_in("z2")
    layout = tasks.layout(group, tasks.alphabet(26), form="compact")
    task = tasks.Task(group, layout, graphs.path(CLAUSES), CLAUSES)
    batch = tasks.sample(task, 1, seeding.numpy_generator(2, "example"))
    words = tasks.text(layout, batch.tokens[0])
    slots = [(index - 1) // 3 for index in batch.indices[0]]
    for k, slot in enumerate(slots):
        variable, operator, operand = words[batch.indices[0, k] :][:3]
        sign = "not " if operator == "not" else ""
        ax.text(
            slot, 0, f"{variable} = {sign}{operand}", ha="center", va="center",
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "black", "linewidth": 1},
        )  # fmt: skip
        ax.text(slot, -0.6, f"position {k}: {batch.values[0, k]}", ha="center", fontsize="small")
        if k:
            left_to_right = slots[k - 1] < slot
            ax.annotate(
                "", (slot, 0.25), (slots[k - 1], 0.25),
                arrowprops={
                    "arrowstyle": "->", "color": figures.PALETTE[0], "linewidth": 1.5,
                    "connectionstyle": f"arc3,rad={-0.3 if left_to_right else 0.3}",
                },
            )  # fmt: skip
    ax.set(
        xlim=(-0.6, CLAUSES - 0.4), ylim=(-0.8, 1.3), title="A sentence: clauses in random order"
    )
    ax.axis("off")


job.run(main, globals())
