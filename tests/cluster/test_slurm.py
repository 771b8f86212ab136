"""The workflow on a SLURM of one node: what its jobs request, and that results are the same."""

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
from checkouts import ROOT, SNAKEMAKE, Checkout, smoked, workflow
from likeness import assert_like, compared
from trainings import PATIENCE, Training, until

pytestmark = pytest.mark.skipif(bool(one_node.missing()), reason=one_node.missing())

PROFILE = ["--workflow-profile", ROOT / "profiles/slurm"]
# Without an accounting database the queue has the state of jobs
HERE = ["--slurm-no-account", "--slurm-status-command", "squeue"]
HERE += ["--slurm-init-seconds-before-status-checks", "2", "--retries", "0"]
CARD = """
import os, time
from pathlib import Path
from scripts.anatomy.gpu_lease import lease

with lease("cuda", gpus_allocated=1, folder=Path("leases"), device_count=1, timeout=0) as device:
    print(device, os.environ["CUDA_VISIBLE_DEVICES"], time.time())
    time.sleep(3)
    print(time.time())
"""


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run a node with two cores and two device files as GPUs."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("slurm")
        try:
            stack.enter_context(one_node.running(folder, cpus=2, memory=16000, gpus=2))
        except (OSError, TimeoutError) as error:  # a container may forbid devices, or ports
            pytest.skip(f"SLURM does not start here: {error}")
        yield


@pytest.fixture(scope="module")
def studies(pytestconfig: pytest.Config) -> list[str]:
    """Return the studies that SLURM runs: one, or all with `--slow`."""
    every = ["topic", "text", "embedding", "lego", "pretraining"]
    return every if pytestconfig.getoption("slow") else every[:1]


class Submission(dict[str, str]):
    """The attributes of a SLURM job, with SLURM's names."""

    @property
    def group(self) -> str:
        """The group that was submitted."""
        (name,) = re.findall(r"slurm_logs/(?:group|rule)_(\w+)", self["StdOut"])
        return max((known for known in groups() if name.startswith(known)), key=len)


def groups() -> dict[str, bool]:
    """Return the groups of jobs, and whether a rule of the group requests a GPU."""
    gpu: dict[str, bool] = {}
    for rule in workflow().rules:
        group = rule.ruleinfo.group
        if group:
            gpu[group] = gpu.get(group, False) or "gpu" in rule.resources
    return gpu


def submissions() -> list[Submission]:
    """Return all batch jobs that were submitted to SLURM so far."""
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
    """Return a project in which SLURM ran config/smoke.yaml, and what Snakemake printed."""
    folder = tmp_path_factory.mktemp("smoke") / "project"
    printed = smoked(folder, *PROFILE, *HERE, "--", *studies)
    return Checkout(folder), printed


def test_results_are_those_of_a_local_run(
    run: tuple[Checkout, str], smoke: Checkout, studies: list[str]
) -> None:
    """Results from SLURM equal those of a local run."""
    remote, local = (
        {
            name: bits
            for name, bits in compared(project.path("")).items()
            if name.startswith(tuple(f"{study}/" for study in studies))
        }
        for project in (run[0], smoke)
    )
    assert local
    assert_like(local, remote)


def test_submissions_request_what_their_rules_state(
    run: tuple[Checkout, str], studies: list[str]
) -> None:
    """Each group is submitted, with a GPU if one of its rules uses one, with memory and time."""
    wants_gpu = {group: gpu for group, gpu in groups().items() if group.startswith(tuple(studies))}
    requests = submissions()
    assert {submission.group for submission in requests} == wants_gpu.keys()
    for submission in requests:
        gpus = submission.get("TresPerJob", "")
        assert gpus == ("gres:gpu:1" if wants_gpu[submission.group] else ""), submission
        assert re.fullmatch(r"\d+[MG]", submission["MinMemoryNode"])
        assert re.fullmatch(r"(\d+-)?\d\d:\d\d:\d\d", submission["TimeLimit"])


def test_small_jobs_share_submissions(run: tuple[Checkout, str]) -> None:
    """A submission has more than five jobs on average."""
    jobs, submitted = submission_counts(run[1])
    assert submitted == run[1].count("has been submitted with SLURM jobid")
    assert jobs > 5 * submitted


def test_the_default_run_has_few_submissions(tmp_path: Path) -> None:
    """config.yaml has fewer than 40 submissions."""
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\nexit 1\n")  # no job runs
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
    jobs, submitted = submission_counts(printed)
    assert jobs > 300
    assert submitted < 40


def submission_counts(printed: str) -> tuple[int, int]:
    """Return the numbers of jobs and of submissions that Snakemake printed."""
    line = re.search(r"^To the cluster: (\d+) jobs in (\d+) submissions$", printed, re.M)
    assert line, printed
    return int(line[1]), int(line[2])


def test_two_jobs_use_two_cards_at_the_same_time(tmp_path: Path) -> None:
    """Two jobs with a GPU each lease different cards, and neither waits for the other."""
    command = ["srun", "--ntasks=1", "--gpus=1", "--mem=500", sys.executable, "-c", CARD]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    jobs = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]  # fmt: skip
    lines = [job.communicate(timeout=60)[0].split() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    devices, cards, starts, ends = zip(*lines, strict=True)
    assert devices == ("cuda:0", "cuda:0")  # a job sees one card
    assert {*cards} == {"0", "1"}
    assert max(map(float, starts)) < min(map(float, ends))


def test_a_preempted_training_continues_at_the_next_attempt(
    training: Training, uninterrupted: Training
) -> None:
    """A training that SLURM ends continues from its saved step, with twice the memory."""
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
    assert 2 * megabytes(first["MinMemoryNode"]) == megabytes(second["MinMemoryNode"])


def megabytes(amount: str) -> int:
    """Return an amount of memory of SLURM in MB."""
    return int(amount[:-1]) * {"M": 1, "G": 1024}[amount[-1]]
