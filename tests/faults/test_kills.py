"""A workflow that is killed repeatedly has the same results as an undisturbed one, bit for bit.

After every kill, the existing results are compared. Every kill is of all processes, as in a power
cut. The moments are random; a failure prints the seed.
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
    """Run a project with so many kills, and then to the end.

    After each kill the results are compared with those in `like`, an undisturbed run that took
    `seconds`. A run that ends before its kill loses a random one of the folders `lost`.
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
        made = compared(project.path(""))
        missing = len(expected.keys() - made.keys())
        print(f"kill {kill + 1} after {patience:.1f} s: {missing} of {wanted} files are missing")
        assert_like({name: expected.get(name) for name in made}, made)
        if killed:
            kill += 1
            project.snakemake("--unlock")
        else:
            shutil.rmtree(rng.choice(sorted(project.path("").glob(lost))))
    project.snakemake("--", *target)
    assert_like(expected, compared(project.path("")))
    assert "Nothing to be done" in project.snakemake("--", *target)


def killed_after(seconds: float, command: list[str | Path], folder: Path) -> bool:
    """Run a command and kill it with its children; return False if it ended before."""
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
    """Return whether any process of a group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_trainings_and_measurements_killed_at_random(checkout: Checkout, finished: Path) -> None:
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
    undisturbed, killed = (smoke(tmp_path / name) for name in ("undisturbed", "killed"))
    started = time.monotonic()
    undisturbed.snakemake(timeout=3600)
    seconds = time.monotonic() - started
    killed_until_finished(
        killed, ["all"], like=undisturbed.path(""), kills=20, seconds=seconds, lost="*/",
        seed=random.randrange(2**32),
    )  # fmt: skip


def smoke(folder: Path) -> Checkout:
    """Return a project in an empty folder, configured by config/smoke.yaml."""
    project = Checkout(ROOT, folder)
    project.overlay = SMOKE
    return project
