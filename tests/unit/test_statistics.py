"""Records become tidy rows, and seeds become intervals."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scripts.anatomy.statistics import flatten, interval, run_row


def test_leaves_are_named_by_their_path_and_lists_left_out() -> None:
    record = {"a": 1, "b": {"c": None, "d": {"e": "x"}, "f": [1, 2], "g": {}}}
    assert dict(flatten(record)) == {"a": 1, "b.c": None, "b.d.e": "x"}
    assert dict(flatten(record, "params."))["params.b.d.e"] == "x"


def test_a_row_of_a_run() -> None:
    path = Path("elsewhere/results/topic/lda/value_squared/seed12/run.json")
    record = {
        "provenance": {"seed": 12, "device": "cpu", "seconds": 1.5},
        "params": {"loss": "squared", "model": {"head": "tied"}},
    }
    assert run_row(path, record, {"value": {"contrast": 0.1}}) == {
        "study": "topic",
        "subject": "lda",
        "variant": "value_squared",
        "seed": 12,
        "device": "cpu",
        "seconds": 1.5,
        "params.loss": "squared",
        "params.model.head": "tied",
        "metrics.value.contrast": 0.1,
    }


def test_interval_by_hand() -> None:
    # three values around 2 with standard deviation 1; t is 4.3027 for two degrees of freedom
    mean, low, high = interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, low, high) == pytest.approx(
        (2, 2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), rel=1e-4
    )


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_interval_is_students(values: list[float]) -> None:
    mean, low, high = interval(np.array(values))
    assert low <= mean <= high
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    error = stats.sem(values)
    if error > 1e-9:
        expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), error)
        assert (low, high) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0]])
def test_one_value_is_its_own_interval(values: list[float]) -> None:
    assert interval(np.array(values)) == (values[0],) * 3


def test_a_value_that_is_no_number_spoils_the_mean() -> None:
    assert all(map(math.isnan, interval(np.array([1.0, math.nan]))))
