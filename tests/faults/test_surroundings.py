"""What is around a run and not of its own making: other processes, other code, no cluster."""

import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import ROOT, Checkout

THEORY = "results/topic/theory.json"
JOB = """
import sys
from scripts.job import _alone

with _alone(sys.argv[1]):
    print("alone", flush=True)
    sys.stdin.read()
"""


def test_one_job_at_a_time_makes_a_file(tmp_path: Path) -> None:
    """A job that outlived its killed Snakemake would overwrite what the next one has made."""

    def start(output: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", JOB, output], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    first = start("results/a")
    assert first.stdout.readline() == "alone\n"
    second, other = start("results/a"), start("results/b")
    assert other.communicate(timeout=60) == ("alone\n", "")
    assert second.stderr.readline() == "another process makes results/a; waiting for it\n"
    assert not select.select([second.stdout], [], [], 0.5)[0]
    assert first.communicate(timeout=60) == ("", "")
    assert second.communicate(timeout=60) == ("alone\n", "")
    assert [job.returncode for job in (first, second, other)] == [0, 0, 0]


def test_the_library_of_another_checkout_is_refused(
    fresh: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of that code would be kept under the digest of this one."""
    shutil.copytree(ROOT / "scripts", tmp_path / "other/scripts")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    printed = fresh.snakemake("--", THEORY, status=1)
    assert "look at PYTHONPATH" in fresh.log_of_failure(printed)
    assert not fresh.path("topic/theory.json").exists()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--set-threads=topic_theory=0", "threads of rule {}: 0 is less than 1"),
        ("--set-resources=topic_theory:gpu=a", "gpu of rule {}: 'a' is no number of GPUs"),
    ],
)
def test_a_grant_without_sense_is_told(fresh: Checkout, option: str, told: str) -> None:
    """Torch, and the count of GPUs, would end in a traceback."""
    printed = fresh.snakemake(option, "--", THEORY, status=1)
    *_, line = fresh.log_of_failure(printed).splitlines()
    assert line == told.format("topic_theory")


@pytest.mark.parametrize("name", ["results", "logs"])
def test_a_file_in_place_of_a_folder_is_told(fresh: Checkout, name: str) -> None:
    """Snakemake would end in a traceback."""
    (fresh.directory / name).symlink_to(fresh.directory / "nowhere")
    *_, line = fresh.snakemake("-n", "--", THEORY, status=1).splitlines()
    assert line == f"{fresh.directory / name} is no folder"


def test_a_cluster_that_does_not_answer_is_told(
    fresh: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who forgets to log in to the cluster would wait for ever."""
    monkeypatch.setenv("SLURM_CONF", str(fresh.directory / "none.conf"))
    wanted = "results/topic/lda/seed0/corpus.safetensors"
    profile = ["--workflow-profile", ROOT / "profiles/slurm"]
    printed = fresh.snakemake(*profile, "--", wanted, status=1, timeout=100)
    assert "SLURM does not answer here" in printed
    assert "Traceback" not in printed
