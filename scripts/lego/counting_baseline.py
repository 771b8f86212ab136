"""Compute the counting baseline of a task: the best accuracy without following the chain."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.lego import counting_baseline, graphs, tasks
from scripts.anatomy.lego.settings import TaskSettings

SAMPLED_GRAPHS = 20_000  # where each sentence has a graph of its own


def main(snakemake: Any) -> None:
    """Write the accuracy at each position, with its standard error."""
    with job.config_errors(f"lego.tasks.{snakemake.wildcards.task}"):
        task = tasks.Task.from_settings(TaskSettings.model_validate(snakemake.params.task))
    rng = seeding.numpy_generator(0, "bag")
    count = SAMPLED_GRAPHS if callable(task.graph) else 1
    accuracy, error = counting_baseline.accuracy(
        task.group,
        graphs.draw(task.graph, count, rng),
        operators=task.operators_used,
        rng=rng,
    )
    artifacts.write_json(
        snakemake.output[0], {"accuracy": accuracy.tolist(), "standard_error": error.tolist()}
    )


job.run(main, globals())
