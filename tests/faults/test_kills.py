"""A workflow that is killed at any moment, again and again, ends with the results of any other.

They are compared bit for bit, after every kill what is there by then. Every kill is of all
processes at once, as when the power goes. The moments are random; a failure prints the seed.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from checkouts import ROOT, SMOKE, Checkout
from likeness import assert_like, compared
from trainings import until

START = 4  # seconds in which snakemake plans, more or less


def killed_until_finished(
    project: Checkout, target: list[str], *, like: Path, kills: int, seconds: float, lost: str,
    seed: int,
) -> None:  # fmt: skip
    """Run a project, killed so many times, and once to the end.

    Whatever is there after a kill is compared with the results in `like`, an undisturbed run that
    took so many seconds. A run that is faster than its kill loses one of the folders `lost`.
    """
    rng = random.Random(seed)
    print(f"seed {seed}")
    expected = compared(like)
    missing = wanted = len(expected.keys() - compared(project.path("")).keys())
    kill = 0
    while kill < kills:
        share = seconds * missing / wanted / (kills - kill)
        patience = rng.uniform(START / 2, START + 2 * share)
        killed = killed_after(patience, project.command("--", *target), project.directory)
        found = compared(project.path(""))
        missing = len(expected.keys() - found.keys())
        print(f"kill {kill + 1} after {patience:.1f} s: {missing} of {wanted} files are missing")
        assert_like({name: expected.get(name) for name in found}, found)
        if killed:
            kill += 1
            project.snakemake("--unlock")
        else:
            shutil.rmtree(rng.choice(sorted(project.path("").glob(lost))))
    project.snakemake("--", *target)
    found = compared(project.path(""))
    assert_like(expected, found)
    assert "Nothing to be done" in project.snakemake("--", *target)


def killed_after(seconds: float, command: list[str | Path], folder: Path) -> bool:
    """Run a command and kill it, and all that it has started; False if it ended before."""
    printed = folder / "printed.txt"
    with printed.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, start_new_session=True, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not group_lives(process.pid), "all its jobs are dead")
        return True
    assert status == 0, printed.read_text("utf-8")
    return False


def group_lives(group: int) -> bool:
    """Whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_trainings_and_measurements_killed_at_random(checkout: Checkout, finished: Path) -> None:
    """Files that only look finished would be taken for results."""
    variants = sorted(checkout.path("topic/lda").glob("*_squared"))
    assert len(variants) == 2
    target = [
        str(path.relative_to(checkout.directory))
        for folder in variants
        for path in folder.glob("seed*/metrics.json")
    ]
    for folder in variants:
        shutil.rmtree(folder)
    killed_until_finished(
        checkout, target, like=finished / "results", kills=2, seconds=10,
        lost="topic/lda/*_squared", seed=random.randrange(2**32),
    )  # fmt: skip


@pytest.mark.slow
def test_the_smoke_run_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    """Who shares a machine, or a queue, would have to watch over every run."""
    undisturbed, killed = (smoke(tmp_path / name) for name in ("undisturbed", "killed"))
    started = time.monotonic()
    undisturbed.snakemake(timeout=3600)
    seconds = time.monotonic() - started
    killed_until_finished(
        killed, ["all"], like=undisturbed.path(""), kills=20, seconds=seconds, lost="*/",
        seed=random.randrange(2**32),
    )  # fmt: skip


def smoke(folder: Path) -> Checkout:
    """An empty folder for the results of config/smoke.yaml."""
    project = Checkout(ROOT, folder)
    project.overlay = SMOKE
    return project
