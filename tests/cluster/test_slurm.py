"""The workflow on a real SLURM of one node: what it asks for, and that the results are the same."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import one_node
import psutil
import pytest
from checkouts import ROOT, SNAKEMAKE, Checkout, smoked
from likeness import assert_like, compared
from trainings import PATIENCE, Training, until

pytestmark = pytest.mark.skipif(bool(one_node.missing()), reason=one_node.missing())

PROFILE = ["--workflow-profile", ROOT / "profiles/slurm"]
# no accounting database, and nobody else who asks: look at the queue, and often
HERE = ["--slurm-no-account", "--slurm-status-command", "squeue"]
HERE += ["--slurm-init-seconds-before-status-checks", "2", "--retries", "0"]
CARD = """
import os, time
from pathlib import Path
from scripts.anatomy.devices import lease

with lease("cuda", gpus_allocated=1, folder=Path("leases"), device_count=1, timeout=0) as device:
    print(device, os.environ["CUDA_VISIBLE_DEVICES"], time.time())
    time.sleep(3)
    print(time.time())
"""


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One node with two cores and two pretended GPUs."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("slurm")
        try:
            stack.enter_context(one_node.running(folder, cpus=2, memory=16000, gpus=2))
        except (OSError, TimeoutError) as error:  # a container may forbid devices, or ports
            pytest.skip(f"SLURM does not start here: {error}")
        yield


@pytest.fixture(scope="module")
def studies(pytestconfig: pytest.Config) -> list[str]:
    """What SLURM is to run: one study, or with `--slow` all."""
    every = ["topic", "text", "embedding", "lego", "pretraining"]
    return every if pytestconfig.getoption("slow") else every[:1]


class Submission(dict[str, str]):
    """What SLURM knows of a job, by SLURM's names."""

    @property
    def group(self) -> str:
        """The group, or the rule, that was submitted."""
        (name,) = re.findall(r"slurm_logs/(?:group|rule)_(\w+)", self["StdOut"])
        return max((known for known in groups() if name.startswith(known)), key=len)


def groups() -> dict[str, bool]:
    """The groups of the rules, and whether a rule in them asks for a GPU."""
    found: dict[str, bool] = {}
    for file in (ROOT / "rules").glob("*.smk"):
        for rule in re.split(r"^(?=rule )", file.read_text("utf-8"), flags=re.M):
            named = re.search(r'group:\s+(?:"(\w+)"|trainings\("(\w+)"\))', rule)
            if named:
                group = named[1] or f"{named[2]}_trainings"
                found[group] = found.get(group, False) or "gpu=1" in rule
    return found


def submissions() -> list[Submission]:
    """All batch jobs that were submitted to SLURM so far."""
    printed = subprocess.run(
        ["scontrol", "show", "job", "--oneliner"], check=True, capture_output=True, text=True
    ).stdout
    jobs = [
        Submission(entry.split("=", 1) for entry in line.split() if "=" in entry)
        for line in printed.splitlines()
    ]
    return [job for job in jobs if job["BatchFlag"] == "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, studies: list[str]) -> tuple[Checkout, str]:
    """A project in which SLURM has run config/smoke.yaml, and what Snakemake printed."""
    folder = tmp_path_factory.mktemp("smoke") / "project"
    printed = smoked(folder, *PROFILE, *HERE, "--", *studies)
    return Checkout(folder), printed


def test_results_are_those_of_a_local_run(
    run: tuple[Checkout, str], smoke: Checkout, studies: list[str]
) -> None:
    """A number would depend on where it was computed."""
    there, here = (
        {
            name: bits
            for name, bits in compared(project.path("")).items()
            if name.startswith(tuple(f"{study}/" for study in studies))
        }
        for project in (run[0], smoke)
    )
    assert here
    assert_like(here, there)


def test_submissions_ask_for_what_their_rules_need(
    run: tuple[Checkout, str], studies: list[str]
) -> None:
    """Trainings would wait in a queue without GPUs, or be killed for memory or time."""
    wants_gpu = {group: gpu for group, gpu in groups().items() if group.startswith(tuple(studies))}
    asked = submissions()
    assert {submission.group for submission in asked} == wants_gpu.keys()
    for submission in asked:
        gpus = submission.get("TresPerJob", "")
        assert gpus == ("gres:gpu:1" if wants_gpu[submission.group] else ""), submission
        assert re.fullmatch(r"\d+[MG]", submission["MinMemoryNode"])
        assert re.fullmatch(r"(\d+-)?\d\d:\d\d:\d\d", submission["TimeLimit"])


def test_small_jobs_share_submissions(run: tuple[Checkout, str]) -> None:
    """The queue would drown in jobs of seconds."""
    jobs, together = told(run[1])
    assert together == run[1].count("has been submitted with SLURM jobid")
    assert jobs > 5 * together


def test_the_default_run_has_few_submissions(tmp_path: Path) -> None:
    """The same, for the run that everybody starts with; the number is in the README."""
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\nexit 1\n")  # nothing is to run
    sbatch.chmod(0o755)
    command = [SNAKEMAKE, "--directory", tmp_path, "-s", ROOT / "Snakefile", *PROFILE, *HERE]
    environment = os.environ | {"PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
    with psutil.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as snakemake:
        printed = ""
        for line in snakemake.stdout:
            printed += line
            if line.startswith("To the cluster: "):
                break
        for process in [snakemake, *snakemake.children(recursive=True)]:
            process.kill()
    jobs, together = told(printed)
    assert jobs > 300
    assert together < 40


def told(printed: str) -> tuple[int, int]:
    """How many jobs go to the cluster, and in how many submissions, in what Snakemake printed."""
    found = re.search(r"^To the cluster: (\d+) jobs in (\d+) submissions$", printed, re.M)
    assert found, printed
    return int(found[1]), int(found[2])


def test_two_jobs_get_two_cards_and_neither_waits(tmp_path: Path) -> None:
    """Both would compute on the first card, or the second wait for it."""
    command = ["srun", "--ntasks=1", "--gpus=1", "--mem=500", sys.executable, "-c", CARD]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    jobs = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]  # fmt: skip
    told = [job.communicate(timeout=60)[0].split() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    devices, cards, starts, ends = zip(*told, strict=True)
    assert devices == ("cuda:0", "cuda:0")  # what torch calls the only card that it sees
    assert {*cards} == {"0", "1"}
    assert max(map(float, starts)) < min(map(float, ends))


def test_a_preempted_training_goes_on_when_it_is_submitted_again(
    training: Training, uninterrupted: Training
) -> None:
    """A time limit of the partition would cost the training so far."""
    again = [*HERE[:-1], "1"]  # one retry
    training.command += [*PROFILE, *again]
    snakemake = training.start()
    before = {submission["JobId"] for submission in submissions()}
    until(lambda: training.step > 0 or snakemake.poll() is not None, "a step is saved")
    (running,) = [job for job in submissions() if job["JobState"] == "RUNNING"]
    subprocess.run(["scancel", "--full", "--signal=TERM", running["JobId"]], check=True)
    assert snakemake.wait(PATIENCE) == 0, training.printed
    assert "going on from step" in training.log
    assert training.outputs() == uninterrupted.outputs()
    first, second = (job for job in submissions() if job["JobId"] not in before)
    # and for more memory, which may have been what it lacked
    assert 2 * megabytes(first["MinMemoryNode"]) == megabytes(second["MinMemoryNode"])


def megabytes(amount: str) -> int:
    """SLURM's amount of memory as a number."""
    return int(amount[:-1]) * {"M": 1, "G": 1024}[amount[-1]]
