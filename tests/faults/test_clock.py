"""Clocks that are wrong: files of tomorrow, or of long ago, make nothing run again and again."""

import os
import time
from pathlib import Path

import pytest
from checkouts import NOTHING, SOURCES, Checkout

DAY = 86_400


def shift(folder: Path, seconds: float) -> None:
    """Date all files and folders in a folder, or a file, so much from now."""
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
def test_dates_alone_make_nothing_run(
    checkout: Checkout, tomorrow: list[str], long_ago: list[str]
) -> None:
    """A machine whose clock is a day ahead would train everything again, at every start."""
    for name in tomorrow:
        shift(checkout.directory / name, DAY)
    for name in long_ago:
        shift(checkout.directory / name, -1000 * DAY)
    assert checkout.plan() == NOTHING


@pytest.mark.slow
def test_a_run_on_inputs_of_tomorrow_ends_and_is_done(checkout: Checkout) -> None:
    """What is made today would be older than what it is made from, and be made again for ever."""
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
