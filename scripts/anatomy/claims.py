"""The papers' findings as measurable statements, and the verdict on each.

`claims.yaml` lists them by study. A claim names the artifacts that it is measured on, a metric in
them and what is expected of it. Its value is the mean over the seeds, with a 95 % interval by
Student's t; it is reproduced when the whole interval is where the claim expects it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from scripts.anatomy.config_loading import ConfigError, check_plain, read, told
from scripts.anatomy.settings import Settings
from scripts.anatomy.statistics import mean_interval

SCALES = ("smoke", "laptop", "paper")
FEWEST_SEEDS = 3
Verdict = Literal["reproduced", "not reproduced", "not testable at this scale"]


class MissingMetric(ValueError):
    """An artifact has no such metric: a setting of the run leaves it out."""


class Expectation(Settings):
    """Where a value should be; give exactly one of near, between, above and below."""

    near: float | None = Field(None, description="The value, up to `within` or `percent`.")
    within: float | None = Field(None, ge=0, description="Largest difference from `near`.")
    percent: float | None = Field(None, gt=0, description="The same in percent of `near`.")
    between: tuple[float, float] | None = Field(None, description="Lowest and highest value.")
    above: float | None = Field(None, description="The value must be above this.")
    below: float | None = Field(None, description="The value must be below this.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [self.near, self.between, self.above, self.below]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of near, between, above and below")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError("between wants the lower value first")
        if (self.near is not None) != ((self.within is None) != (self.percent is None)):
            raise ValueError("near needs either within or percent, and only near takes them")
        return self

    def bounds(self) -> tuple[float, float]:
        """Lowest and highest value that are as expected."""
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
    """One finding of a paper."""

    id: str = Field(description="Short name, unique.")
    study: Literal["topic", "text", "embedding", "lego", "pretraining"] = Field(
        description="Study that it belongs to."
    )
    statement: str = Field(description="What was found, in a sentence.")
    source: str = Field(description="Where: paper and theorem, figure or section.")
    scale: Literal["smoke", "laptop", "paper"] = Field(
        description="Smallest scale at which it can be tested."
    )
    artifacts: list[str] = Field(
        min_length=1,
        description="Files; {seed} stands for each seed. Of several, the `worst` "
        "value counts, seed by seed.",
    )
    metric: str = Field(
        description="Path of the metric, keys joined with dots. A list has a value per seed."
    )
    expect: Expectation = Field(description="Where the metric should be.")
    every_seed: bool = Field(
        False,
        description="Every single seed must be as expected, not only the interval of the mean.",
    )

    def paths(self, seeds: Sequence[int]) -> list[str]:
        """All its artifacts."""
        return [path for artifact in self.artifacts for path in _of_seeds(artifact, seeds)]


def _of_seeds(artifact: str, seeds: Sequence[int]) -> list[str]:
    if "{seed}" not in artifact:
        return [artifact]
    return [artifact.replace("{seed}", str(seed)) for seed in seeds]


def load(path: Path) -> list[Claim]:
    """Return the claims of a file that lists them by study.

    An entry with `claims` is a group: the keys beside `claims` hold for each of them.

    Raises:
        ConfigError: One line a mistake: the file, the study, the claim and the key.
    """
    listed = read(path)
    try:
        check_plain(listed)
        claims = [
            _claim(f"{study}.{given.get('id', number)}", {"study": study, **given})
            for study, entries in listed.items()
            for number, given in enumerate(_expanded(study, entries))
        ]
    except ConfigError as error:
        raise ConfigError(f"{path}: {line}" for line in str(error).split("\n")) from None
    ids = [claim.id for claim in claims]
    if repeated := {name for name in ids if ids.count(name) > 1}:
        raise ConfigError([f"{path}: {min(repeated)}: the id is given twice"])
    return claims


def _expanded(study: str, entries: Any) -> Iterator[dict[str, Any]]:
    """Yield the claims of a study as they are given, with what they inherit from their group."""
    if not isinstance(entries, list):
        raise ConfigError([f"{study}: expected a list of claims"])
    for number, entry in enumerate(entries):
        shared = dict(entry) if isinstance(entry, dict) else {}
        given = shared.pop("claims", [{}])
        if not (shared or given) or not isinstance(given, list):
            raise ConfigError([f"{study}.{number}: expected a claim or a group of claims"])
        for own in given:
            if not isinstance(own, dict):
                raise ConfigError([f"{study}.{number}.claims: expected claims, got {own!r}"])
            yield shared | own


def _claim(key: str, given: dict[str, Any]) -> Claim:
    """Return a claim; ConfigError with its key if something is wrong with it."""
    try:
        return Claim.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"{key}.{line}" for line in told(error, given)) from None


def testable(
    claims: Sequence[Claim],
    scale: str,
    available: Collection[str],
    seeds: Mapping[str, Sequence[int]],
) -> list[Claim]:
    """The claims that this scale and its seeds, by study, suffice for, and whose artifacts exist.

    What differs between seeds is not judged on fewer than `FEWEST_SEEDS`.
    """
    enough = SCALES[: SCALES.index(scale) + 1]
    return [
        claim
        for claim in claims
        if claim.scale in enough
        and set(claim.paths(seeds[claim.study])) <= set(available)
        and (
            len(seeds[claim.study]) >= FEWEST_SEEDS
            or not any("{seed}" in artifact for artifact in claim.artifacts)
        )
    ]


def judge(
    claim: Claim, records: Mapping[str, Any] | None, seeds: Sequence[int]
) -> dict[str, str | float | None]:
    """The ledger's row of a claim; `records` holds its artifacts by path, None if not testable."""
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
    if len(values) < FEWEST_SEEDS and any(
        isinstance(_lookup(records[path], claim.metric, path), list) for path in claim.paths(seeds)
    ):
        return row  # a list over too few seeds
    value, low, high = mean_interval(values)
    if claim.every_seed:
        low, high = min(low, values.min()), max(high, values.max())
    least, most = claim.expect.bounds()
    held = bool(np.isfinite(values).all() and least <= low and high <= most)
    verdict = "reproduced" if held else "not reproduced"
    return row | {
        "value": value, "low": low, "high": high, "seeds": len(values), "verdict": verdict
    }  # fmt: skip


def _worst(claim: Claim, records: Mapping[str, Any], seeds: Sequence[int]) -> np.ndarray:
    """Per seed, the value that is furthest from what is expected."""
    values = np.array([_values(claim, artifact, records, seeds) for artifact in claim.artifacts])
    least, most = claim.expect.bounds()
    # how far inside the bounds a value is; the nearer bound decides
    margin = np.minimum(values - least, most - values)
    margin = np.where(np.isfinite(values), margin, -np.inf)
    return np.take_along_axis(values, margin.argmin(axis=0)[None], axis=0)[0]


def _values(
    claim: Claim, artifact: str, records: Mapping[str, Any], seeds: Sequence[int]
) -> list[float]:
    """The metric in one artifact, seed by seed."""
    found = [_lookup(records[path], claim.metric, path) for path in _of_seeds(artifact, seeds)]
    values = found[0] if isinstance(found[0], list) else found
    return [float("nan") if value is None else float(value) for value in values]


def _lookup(record: Any, metric: str, path: str) -> Any:
    for key in metric.split("."):
        if not isinstance(record, Mapping) or key not in record:
            raise MissingMetric(f"{path} has no metric {metric}: {key} is missing")
        record = record[key]
    return record
