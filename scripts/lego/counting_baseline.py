"""What can be known of a task's values without following the chain: the baseline of accuracies."""

from typing import Any

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.lego import counting_baseline, graphs, laws
from scripts.anatomy.lego.settings import Task

SAMPLED_GRAPHS = 20_000  # where each sentence has a graph of its own


def main(snakemake: Any) -> None:
    """Compute the row of the table."""
    with job.blaming(f"lego.tasks.{snakemake.wildcards.task}"):
        rules = laws.law(Task.model_validate(snakemake.params.task))
    rng = seeding.numpy_generator(0, "bag")
    count = SAMPLED_GRAPHS if callable(rules.graph) else 1
    accuracy, error = counting_baseline.accuracy(
        rules.group,
        graphs.draw(rules.graph, count, rng),
        operators=rules.operators_used,
        rng=rng,
    )
    artifacts.write_json(
        snakemake.output[0], {"accuracy": accuracy.tolist(), "standard_error": error.tolist()}
    )


job.run(main, globals())
