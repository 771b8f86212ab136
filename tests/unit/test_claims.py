"""Verdicts: intervals inside and outside what is expected, seeds, scales and lists."""

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.anatomy import claims
from scripts.anatomy.claims import Claim, Expectation

ROOT = Path(__file__).parents[2]


def claim(expect: dict, **changes: object) -> Claim:
    defaults = {
        "id": "mine",
        "study": "topic",
        "statement": "Something is so.",
        "source": "a paper",
        "scale": "laptop",
        "artifacts": ["a/seed{seed}.json"],
        "metric": "deep.value",
    }
    return Claim.model_validate(defaults | {"expect": expect} | changes)


def judged(given: Claim, values: list[float | None]) -> dict:
    records = {f"a/seed{seed}.json": {"deep": {"value": v}} for seed, v in enumerate(values)}
    return claims.judge(given, records, range(len(values)))


@pytest.mark.parametrize(
    ("expect", "values", "verdict"),
    [
        ({"near": 1, "within": 0.1}, [1.0, 1.01, 0.99], "reproduced"),
        ({"near": 1, "percent": 10}, [1.0, 1.01, 0.99], "reproduced"),
        ({"near": -1, "percent": 10}, [-1.0, -1.01, -0.99], "reproduced"),
        # the mean is right, the interval is too wide
        ({"near": 1, "within": 0.1}, [0.9, 1.0, 1.1], "not reproduced"),
        ({"above": 0}, [1.0, 1.1, 1.2], "reproduced"),
        ({"above": 0}, [0.0, 0.0, 0.0], "not reproduced"),
        ({"below": 0}, [0.0, 0.0, 0.0], "not reproduced"),
        ({"between": [1, 2]}, [1.4, 1.5, 1.6], "reproduced"),
        ({"above": 0}, [1.0, None, 1.0], "not reproduced"),
        ({"above": 0}, [1.0, float("nan"), 1.0], "not reproduced"),
    ],
)
def test_verdicts(expect: dict, values: list[float | None], verdict: str) -> None:
    assert judged(claim(expect), values)["verdict"] == verdict


def test_the_interval_is_students_t() -> None:
    row = judged(claim({"above": 0}), [1.0, 2.0, 3.0])
    assert row["value"] == 2
    assert row["high"] - 2 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)


def test_every_seed_has_to_hold() -> None:
    values = [0.02, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert judged(claim({"above": 0.5}), values)["verdict"] == "reproduced"
    assert judged(claim({"above": 0.5}, every_seed=True), values)["verdict"] == "not reproduced"


def test_the_worst_artifact_counts_seed_by_seed() -> None:
    given = claim({"near": 1, "within": 0.5}, artifacts=["a/seed{seed}.json", "b/seed{seed}.json"])
    values = {"a": [1.0, 1.2, 1.0], "b": [1.1, 1.1, 0.8]}
    records = {
        f"{name}/seed{seed}.json": {"deep": {"value": value}}
        for name, each in values.items()
        for seed, value in enumerate(each)
    }
    assert claims.judge(given, records, range(3))["value"] == pytest.approx((1.1 + 1.2 + 0.8) / 3)


def test_a_list_has_a_value_per_seed() -> None:
    given = claim({"above": 0}, artifacts=["summary.json"])
    row = claims.judge(given, {"summary.json": {"deep": {"value": [1.0, 1.0, 1.0]}}}, range(3))
    assert (row["verdict"], row["seeds"]) == ("reproduced", 3)
    few = claims.judge(given, {"summary.json": {"deep": {"value": [1.0, 1.0]}}}, range(2))
    assert few["verdict"] == "not testable at this scale"


def test_what_is_not_testable() -> None:
    given = claim({"above": 0})
    paths = given.paths(range(3))
    seeds = {given.study: range(3)}
    assert claims.testable([given], "laptop", paths, seeds) == [given]
    assert claims.testable([given], "paper", paths, seeds) == [given]
    assert claims.testable([given], "smoke", paths, seeds) == []
    assert claims.testable([given], "laptop", paths[:2], seeds) == []
    assert claims.testable([given], "laptop", paths, {given.study: range(2)}) == []  # too few
    row = claims.judge(given, None, range(3))
    assert row["verdict"] == "not testable at this scale"
    assert row["value"] is None


@pytest.mark.parametrize(
    "expect",
    [{}, {"near": 1}, {"above": 0, "below": 1}, {"between": [2, 1]}, {"above": 0, "within": 1}],
    ids=json.dumps,
)
def test_a_vague_expectation_is_refused(expect: dict) -> None:
    with pytest.raises(ValueError, match="near|exactly|lower"):
        Expectation.model_validate(expect)


def test_a_metric_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"a/seed0\.json has no metric deep\.value: deep"):
        claims.judge(claim({"above": 0}), {"a/seed0.json": {}}, [0])


def test_the_projects_claims_are_well_formed() -> None:
    found = claims.load(ROOT / "claims.yaml")
    assert len(found) > 40
    assert all(each.statement.endswith(".") for each in found)
