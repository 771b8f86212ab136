"""Intervals over seeds, hits and bootstrap replicates; records as rows of tables."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scripts.anatomy import statistics


def test_flatten_joins_keys_with_dots_and_leaves_lists_out() -> None:
    record = {"a": 1, "b": {"c": None, "d": {"e": "x"}, "f": [1, 2], "g": {}}}
    assert dict(statistics.flatten(record)) == {"a": 1, "b.c": None, "b.d.e": "x"}
    assert dict(statistics.flatten(record, "params."))["params.b.d.e"] == "x"


def test_run_row_has_the_parts_of_the_path_provenance_params_and_metrics() -> None:
    path = Path("elsewhere/results/topic/lda/value_squared/seed12/run.json")
    record = {
        "provenance": {"seed": 12, "device": "cpu", "seconds": 1.5},
        "params": {"loss": "squared", "model": {"head": "tied"}},
    }
    assert statistics.run_row(path, record, {"value": {"contrast": 0.1}}) == {
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


def test_mean_interval_of_three_values() -> None:
    # the mean is 2, the standard deviation 1, and t is 4.3027 for two degrees of freedom
    half = 4.3027 / math.sqrt(3)
    expected = (2, 2 - half, 2 + half)
    assert statistics.mean_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx(expected, rel=1e-4)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_mean_interval_equals_scipys(values: list[float]) -> None:
    mean, low, high = statistics.mean_interval(np.array(values))
    assert low <= mean <= high
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    error = stats.sem(values)
    if error > 1e-9:
        assert statistics.standard_error(np.array(values)) == pytest.approx(error)
        expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), error)
        assert (low, high) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0]])
def test_mean_interval_of_one_or_equal_values_has_no_width(values: list[float]) -> None:
    assert statistics.mean_interval(np.array(values)) == (values[0],) * 3


def test_mean_interval_of_a_nan_is_nan() -> None:
    assert all(map(math.isnan, statistics.mean_interval(np.array([1.0, math.nan]))))


def test_proportion_interval_is_wilsons() -> None:
    z = 1.959963984540054
    centre = (0.8 + z**2 / 200) / (1 + z**2 / 100)
    half = z * np.sqrt(0.8 * 0.2 / 100 + z**2 / 40000) / (1 + z**2 / 100)
    interval = statistics.proportion_interval(np.arange(100) < 80)
    assert interval == pytest.approx((0.8, centre - half, centre + half))


def test_bootstrap_interval_leaves_out_a_fortieth_at_each_end() -> None:
    replicates = np.arange(401.0)[:, None] * [1, 2]
    np.testing.assert_allclose(statistics.bootstrap_interval(replicates), [[10, 20], [390, 780]])
