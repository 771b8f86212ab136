"""Wrong clocks: files dated in the future or long ago cause no repeated runs."""

import os
import time
from pathlib import Path

import pytest
from checkouts import NOTHING, SOURCES, Checkout

DAY = 86_400


def shift(folder: Path, seconds: float) -> None:
    """Set the date of a file, or of a folder and all it contains, to so many seconds from now."""
    when = time.time() + seconds
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, (when, when))


@pytest.mark.parametrize(
    ("tomorrow", "long_ago"),
    [
        (["inputs", *SOURCES, "mine.yaml"], ["results"]),
        (["results/topic/lda", "results/models", "results/text/stories"], []),
    ],
    ids=["all but results", "some results"],
)
def test_changed_dates_rerun_nothing(
    checkout: Checkout, tomorrow: list[str], long_ago: list[str]
) -> None:
    for name in tomorrow:
        shift(checkout.directory / name, DAY)
    for name in long_ago:
        shift(checkout.directory / name, -1000 * DAY)
    assert checkout.plan() == NOTHING


@pytest.mark.slow
def test_results_of_inputs_dated_in_the_future_are_up_to_date(checkout: Checkout) -> None:
    for name in ("inputs", "results/topic/lda", "results/models"):
        shift(checkout.directory / name, DAY)
    target = [
        *("results/topic/figures/values.png", "results/text/stories/documents.parquet"),
        "results/models/reader/source.json",
    ]
    for name in target:
        (checkout.directory / name).unlink()
    checkout.snakemake("--", *target)
    assert checkout.plan("--", *target) == NOTHING
