"""Compute the verdict on every claim from the artifacts that it names."""

import logging
from typing import Any

import pandas as pd

from scripts import job
from scripts.anatomy import artifacts, claims

logger = logging.getLogger(__name__)


def main(snakemake: Any) -> None:
    """Judge every claim; a claim whose artifacts are not among the inputs is not testable."""
    params = snakemake.params
    # in a module of another workflow, inputs have other paths than those in the claims
    files = dict(zip(params.artifacts, snakemake.input, strict=True))
    rows = []
    for claim in map(claims.Claim.model_validate, params.claims):
        testable = claim.id in params.testable
        seeds = params.seeds[claim.study]
        records = (
            {p: artifacts.read_json(files[p]) for p in claim.paths(seeds)} if testable else None
        )
        try:
            rows.append(claims.judge(claim, records, seeds))
        except claims.MissingMetric as missing:
            logger.warning("%s is not testable: %s", claim.id, missing)
            rows.append(claims.judge(claim, None, seeds))
    artifacts.write_table(snakemake.output[0], pd.DataFrame(rows))


job.run(main, globals())
