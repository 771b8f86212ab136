"""The findings of the papers as measurable statements, and the verdict on each.

`claims.yaml` lists them by study. A claim names artifacts, a metric in them and the value that is
expected. Its value is the mean over the seeds, with a 95 % interval by Student's t. The verdict is
"reproduced" if the whole interval is within the bounds of the expectation.
"""

import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from scripts.anatomy.config_loading import ConfigError, check_values, format_errors, read
from scripts.anatomy.settings import Settings
from scripts.anatomy.statistics import mean_interval

SCALES = ("smoke", "laptop", "paper")
MIN_SEEDS = 3


class MissingMetric(ValueError):
    """An artifact lacks a metric, since a setting of the run leaves it out."""


class Expectation(Settings):
    """The expected value; give exactly one of near, between, above and below."""

    near: float | None = Field(None, description="Expected value, up to `within` or `percent`.")
    within: float | None = Field(None, ge=0, description="Maximum difference from `near`.")
    percent: float | None = Field(
        None, gt=0, description="Maximum difference in percent of `near`."
    )
    between: tuple[float, float] | None = Field(None, description="Minimum and maximum.")
    above: float | None = Field(None, description="The value must be above this.")
    below: float | None = Field(None, description="The value must be below this.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [self.near, self.between, self.above, self.below]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of near, between, above and below")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"between: expected the lower value first, got {self.between}")
        if (self.near is not None) != ((self.within is None) != (self.percent is None)):
            raise ValueError("give within or percent with near, and only with near")
        return self

    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest value that meet the expectation."""
        if self.near is not None:
            slack = self.within if self.within is not None else abs(self.near) * self.percent / 100
            return self.near - slack, self.near + slack
        if self.between is not None:
            return self.between
        return (
            -np.inf if self.above is None else np.nextafter(self.above, np.inf),
            np.inf if self.below is None else np.nextafter(self.below, -np.inf),
        )

    def __str__(self) -> str:
        if self.near is not None:
            slack = f"{self.within:.10g}" if self.within is not None else f"{self.percent:g} %"
            return f"{self.near:.10g} ± {slack}"
        if self.between is not None:
            return f"{self.between[0]:.10g} to {self.between[1]:.10g}"
        return f"> {self.above:g}" if self.above is not None else f"< {self.below:g}"


class Claim(Settings):
    """A finding of a paper, and how to measure it."""

    id: str = Field(description="Unique name.")
    study: Literal["topic", "text", "embedding", "lego", "pretraining"] = Field(
        description="Study that measures it."
    )
    statement: str = Field(description="The finding as a full sentence.")
    source: str = Field(description="Paper, and theorem, figure or section.")
    scale: Literal["smoke", "laptop", "paper"] = Field(
        description="Smallest scale at which the claim can be tested."
    )
    artifacts: list[str] = Field(
        min_length=1,
        description="Files; {seed} is replaced by each seed. With several files, the value "
        "furthest from the expected one counts, seed by seed.",
    )
    metric: str = Field(
        description="Keys of the metric, joined with dots. A list has one value per seed."
    )
    expect: Expectation = Field(description="Expected value of the metric.")
    every_seed: bool = Field(
        False,
        description="Whether every seed must meet the expectation, not only the interval.",
    )

    def paths(self, seeds: Sequence[int]) -> list[str]:
        """Return the paths of all artifacts of the claim."""
        return [path for artifact in self.artifacts for path in _seed_paths(artifact, seeds)]


def _seed_paths(artifact: str, seeds: Sequence[int]) -> list[str]:
    if "{seed}" not in artifact:
        return [artifact]
    return [artifact.replace("{seed}", str(seed)) for seed in seeds]


def load(path: Path) -> list[Claim]:
    """Return the claims of a file that lists them by study.

    An entry with `claims` is a group, and so is a study: the keys beside `claims` are defaults for
    all of its claims. Groups may contain groups.

    Raises:
        ConfigError: The file, the study, the claim and the key of the first mistake.
    """
    studies = read(path)
    try:
        check_values(studies)
        claims = [
            _claim(key, given)
            for study, entry in studies.items()
            for key, given in _expanded(study, entry, {"study": study})
        ]
    except ConfigError as error:
        raise ConfigError(f"{path}: {line}" for line in str(error).split("\n")) from None
    ids = [claim.id for claim in claims]
    if repeated := {name for name in ids if ids.count(name) > 1}:
        raise ConfigError([f"{path}: {min(repeated)}: the id is given twice"])
    return claims


def _expanded(
    key: str, entry: Any, defaults: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the claims of an entry, each with its key and the defaults of its groups."""
    group = {"claims": entry} if isinstance(entry, list) else entry
    if not isinstance(group, dict) or not group:
        raise ConfigError([f"{key}: expected a claim or a group, got {reprlib.repr(entry)}"])
    given = {**defaults, **group}
    if "claims" not in group:
        yield f"{given['study']}.{given['id']}" if "id" in given else key, given
        return
    claims = given.pop("claims")
    if not isinstance(claims, list):
        raise ConfigError([f"{key}.claims: expected a list, got {reprlib.repr(claims)}"])
    for number, nested in enumerate(claims):
        yield from _expanded(f"{key}.{number}", nested, given)


def _claim(key: str, given: dict[str, Any]) -> Claim:
    """Return a claim; raise ConfigError with its key if it is not valid."""
    try:
        return Claim.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"{key}.{line}" for line in format_errors(error, given)) from None


def testable(
    claims: Sequence[Claim],
    scale: str,
    available: Collection[str],
    seeds: Mapping[str, Sequence[int]],
) -> list[Claim]:
    """Return the claims that can be tested at this scale with these seeds (by study).

    All artifacts of a claim must be available. A claim with an artifact per seed needs `MIN_SEEDS`.
    """
    enough = SCALES[: SCALES.index(scale) + 1]
    return [
        claim
        for claim in claims
        if claim.scale in enough
        and set(claim.paths(seeds[claim.study])) <= set(available)
        and (
            len(seeds[claim.study]) >= MIN_SEEDS
            or not any("{seed}" in artifact for artifact in claim.artifacts)
        )
    ]


def judge(
    claim: Claim, records: Mapping[str, Any] | None, seeds: Sequence[int]
) -> dict[str, str | float | None]:
    """Return the row of a claim in the ledger.

    `records` has the contents of its artifacts by path; None if the claim is not testable.
    """
    row: dict[str, Any] = {
        "id": claim.id,
        "study": claim.study,
        "statement": claim.statement,
        "source": claim.source,
        "scale": claim.scale,
        "metric": claim.metric,
        "value": None,
        "low": None,
        "high": None,
        "seeds": None,
        "expected": str(claim.expect),
        "verdict": "not testable at this scale",
    }
    if records is None:
        return row
    values = _worst(claim, records, seeds)
    if len(values) < MIN_SEEDS and any(
        isinstance(_lookup(records[path], claim.metric, path), list) for path in claim.paths(seeds)
    ):
        return row  # the list has too few seeds
    value, low, high = mean_interval(values)
    if claim.every_seed:
        low, high = min(low, values.min()), max(high, values.max())
    low_bound, high_bound = claim.expect.bounds()
    held = bool(np.isfinite(values).all() and low_bound <= low and high <= high_bound)
    verdict = "reproduced" if held else "not reproduced"
    return row | {
        "value": value, "low": low, "high": high, "seeds": len(values), "verdict": verdict
    }  # fmt: skip


def _worst(claim: Claim, records: Mapping[str, Any], seeds: Sequence[int]) -> np.ndarray:
    """Return, per seed, the value furthest from the expected one."""
    values = np.array([_values(claim, artifact, records, seeds) for artifact in claim.artifacts])
    low_bound, high_bound = claim.expect.bounds()
    # distance inside the bounds, by the nearer one
    margin = np.minimum(values - low_bound, high_bound - values)
    margin = np.where(np.isfinite(values), margin, -np.inf)
    return np.take_along_axis(values, margin.argmin(axis=0)[None], axis=0)[0]


def _values(
    claim: Claim, artifact: str, records: Mapping[str, Any], seeds: Sequence[int]
) -> list[float]:
    """Return the metric of one artifact, seed by seed."""
    values = [_lookup(records[path], claim.metric, path) for path in _seed_paths(artifact, seeds)]
    if isinstance(values[0], list):
        values = values[0]
    return [float("nan") if value is None else float(value) for value in values]


def _lookup(record: Any, metric: str, path: str) -> Any:
    for key in metric.split("."):
        if not isinstance(record, Mapping) or key not in record:
            raise MissingMetric(f"{path} has no metric {metric}: {key} is missing")
        record = record[key]
    return record
