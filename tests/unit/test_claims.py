"""Claims: groups with defaults, expectations, verdicts over seeds, scales and lists."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

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


def test_the_interval_of_a_verdict_is_students_t() -> None:
    row = judged(claim({"above": 0}), [1.0, 2.0, 3.0])
    assert row["value"] == 2
    assert row["high"] - 2 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)


def test_every_seed_must_meet_the_expectation_where_the_claim_says_so() -> None:
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


def test_a_claim_is_testable_with_its_scale_artifacts_and_enough_seeds() -> None:
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
def test_an_expectation_with_too_few_or_too_many_bounds_is_refused(expect: dict) -> None:
    with pytest.raises(ValidationError):
        Expectation.model_validate(expect)


def test_a_missing_metric_is_named_with_its_file() -> None:
    with pytest.raises(claims.MissingMetric, match=r"a/seed0\.json.* deep\.value.* deep"):
        claims.judge(claim({"above": 0}), {"a/seed0.json": {}}, [0])


def test_claims_inherit_the_keys_of_their_study_and_groups(tmp_path: Path) -> None:
    own = {"statement": "It is so.", "metric": "value", "expect": {"above": 0}}
    inner = {"artifacts": ["a.json"], "claims": [{"id": "b", **own}, {"id": "c", **own}]}
    last = {"id": "d", "artifacts": ["d.json"], "scale": "laptop", **own}
    study = {"scale": "smoke", "source": "a paper", "claims": [inner, last]}
    path = tmp_path / "claims.yaml"
    studies = {"topic": study, "lego": [{"source": "x", **last, "id": "e"}]}
    path.write_text(yaml.safe_dump(studies, sort_keys=False))
    loaded = claims.load(path)
    assert [(c.id, c.study, c.source, c.scale, *c.artifacts) for c in loaded] == [
        ("b", "topic", "a paper", "smoke", "a.json"),
        ("c", "topic", "a paper", "smoke", "a.json"),
        ("d", "topic", "a paper", "laptop", "d.json"),
        ("e", "lego", "x", "laptop", "d.json"),
    ]


def test_the_projects_claims_are_different_sentences_with_a_source() -> None:
    loaded = claims.load(ROOT / "claims.yaml")
    assert len({claim.statement for claim in loaded}) == len(loaded) > 40
    for claim in loaded:
        assert claim.statement[0].isupper() or claim.statement.startswith("v0 ")
        assert claim.statement.endswith(".") and " " in claim.source
