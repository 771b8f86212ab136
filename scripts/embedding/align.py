"""Which layers of two models go together, by correlations of their parameters over tokens.

Section 5.1 and Figure 3 of the paper. Controls (see `alignment.controls`) are measured in the same
way. The scores of all pairs of layers are a table, and what matching them says is a record.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from scripts import job
from scripts.anatomy import artifacts, provenance, seeding
from scripts.anatomy.embedding import aggregation, alignment
from scripts.anatomy.embedding.settings import AlignedPairSettings
from scripts.anatomy.embedding.views import ModelView, view
from scripts.anatomy.models import loading

Scores = Mapping[str, Float[np.ndarray, "layers_a layers_b"]]  # by group of parameters


def main(snakemake: Any) -> None:
    """Check that tokens are the same, score all pairs of layers by every measure, match them."""
    began = time.perf_counter()
    params, inp, out = snakemake.params, snakemake.input, snakemake.output
    pair = AlignedPairSettings.model_validate(params.pair)
    key = f"embedding.alignment.pairs.{snakemake.wildcards.pair}"
    with job.compute(snakemake) as compute:
        (A, words_a), (B, words_b) = (
            _read(name, Path(folder), compute.device)
            for name, folder in ((pair.a, inp.a), (pair.b, inp.b))
        )
        with job.config_errors(key):
            tokens = alignment.shared_ids(words_a, words_b, pair.offset)
            kernels = alignment.kernels(A, B, tokens)
            metrics = {"tokens": len(words_a), "condition": alignment.conditions(kernels)}
        scores = {("embedding", None): alignment.model_scores(A, B, kernels)} | {
            (measure, seed): alignment.model_scores(A, B, control)
            for measure, seed, control in alignment.controls(A, B, tokens, params.seeds)
        }
        chance = [
            alignment.chance(kernels.read, seeding.torch_generator(seed, "normal vectors"))
            for seed in params.seeds
        ]
        where = compute.device
    metrics |= _matched(scores, chance, params.draws)
    with job.config_errors(f"{key}.published"):
        metrics["published"] = _published(pair, scores)
    artifacts.write_table(out.table, _table(scores))
    artifacts.write_json(out.summary, metrics)
    record = provenance.record(seed=None, device=str(where), started=began)
    parts = {"pair": params.pair, "seeds": params.seeds, "draws": params.draws}
    artifacts.write_json(out.run, {"params": parts, "metrics": metrics, "provenance": record})


def _read(name: str, folder: Path, device: str) -> tuple[ModelView, list[str]]:
    """Return a model and its tokens, by id."""
    with job.config_errors(f"models.{name}"):
        model = loading.model(folder, head=True)
        seen = view(model.to(device))
        tokenizer = loading.tokenizer(folder, len(seen.W_E))
    return seen, tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))


def _matched(
    scores: Mapping[tuple[str, int | None], Scores], chance: list[float], draws: int
) -> dict[str, Any]:
    """Return what matching says, by measure."""
    summaries = {
        (measure, seed): alignment.summary(
            of_groups, seeding.numpy_generator(seed or 0, "assignments", measure), draws
        )
        for (measure, seed), of_groups in scores.items()
    }
    once = {measure: record for (measure, seed), record in summaries.items() if seed is None}
    shuffled = [record for (_, seed), record in summaries.items() if seed is not None]
    mean = once["embedding"]["all"]["mean"]
    return aggregation.aligned(once, shuffled) | {
        "chance": chance,
        "above_chance": [mean - level for level in chance],
    }


def _published(
    pair: AlignedPairSettings, scores: Mapping[tuple[str, int | None], Scores]
) -> dict[str, dict[str, float]]:
    """Return the share of published matches that recur, by measure and group, and over all."""
    matches = {}
    for measure, expected in pair.published.items():
        of_groups = scores.get((measure, None), {})
        if missing := expected.keys() - of_groups.keys():
            raise ValueError(f"{measure}: the models have no {min(missing)} to compare in this way")
        shares = {
            group: alignment.agreement(of_groups[group], order) for group, order in expected.items()
        }
        matches[measure] = shares | {"all": float(np.mean([*shares.values()]))}
    return matches


def _table(scores: Mapping[tuple[str, int | None], Scores]) -> pd.DataFrame:
    """Return a row for each measure, group and pair of layers."""
    return pd.DataFrame(
        {"measure": measure, "seed": seed} | row
        for (measure, seed), of_groups in scores.items()
        for row in alignment.rows(of_groups)
    ).astype({"seed": "Int64"})


job.run(main, globals())
