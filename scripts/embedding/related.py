"""Do parameters that belong together have similar top tokens? Sim_k by layer (Appendix B.1).

By absolute value with all partners of the layer shuffled (the measure), the same with the released
code's shuffle, which for W_Q and W_K stays inside the first head, and by signed value.
"""

from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, seeding
from scripts.anatomy.embedding import aggregation, parameter_similarity
from scripts.anatomy.embedding.index import Index

MODES = {
    "corrected": {},
    "published": {"shuffle": "published"},
    "signed": {"signed": True},
}


def main(snakemake: Any) -> None:
    """Measure every layer, seed and mode."""
    params = snakemake.params
    index, rows = Index(snakemake.input.index), []
    for layer in index.layers:
        lists = index.layer(layer)
        for seed in params.seeds:
            for mode, choices in MODES.items():
                rng = seeding.numpy_generator(seed, "partners", mode, layer)
                records = parameter_similarity.pair_similarities(lists, rng, k=params.k, **choices)
                rows += [{"mode": mode, "seed": seed, "layer": layer} | r for r in records]
    table = pd.DataFrame(rows)
    artifacts.write_table(snakemake.output.table, table)
    artifacts.write_json(
        snakemake.output.summary,
        aggregation.by_layer(table, ["mode", "pair"], above="similarity", below="shuffled"),
    )


job.run(main, globals())
