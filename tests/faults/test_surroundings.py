"""What surrounds a run: other processes, other code, a cluster that does not answer."""

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
from scripts.job import _output_lock

with _output_lock(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_jobs_that_make_the_same_file_wait_for_each_other(tmp_path: Path) -> None:

    def start(output: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", JOB, output], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    first = start("results/a")
    assert first.stdout.readline() == "locked\n"
    second, other = start("results/a"), start("results/b")
    assert other.communicate(timeout=60) == ("locked\n", "")
    assert second.stderr.readline() == "another process makes results/a; waiting for it\n"
    assert not select.select([second.stdout], [], [], 0.5)[0]
    assert first.communicate(timeout=60) == ("", "")
    assert second.communicate(timeout=60) == ("locked\n", "")
    assert [job.returncode for job in (first, second, other)] == [0, 0, 0]


def test_the_library_of_another_checkout_is_refused(
    fresh: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "other/scripts")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    printed = fresh.snakemake("--", THEORY, status=1)
    assert "PYTHONPATH: " in fresh.log_of_failure(printed)
    assert not fresh.path("topic/theory.json").exists()


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("--set-threads=topic_theory=0", "threads", "0"),
        ("--set-resources=topic_theory:gpu=a", "gpu", "'a'"),
    ],
)
def test_invalid_threads_and_gpus_are_refused(
    fresh: Checkout, option: str, key: str, value: str
) -> None:
    printed = fresh.snakemake(option, "--", THEORY, status=1)
    *_, line = fresh.log_of_failure(printed).splitlines()
    assert line.startswith(f"{key} of rule topic_theory: ") and line.endswith(f"got {value}")


@pytest.mark.parametrize("name", ["results", "logs"])
def test_a_link_to_nowhere_instead_of_a_folder_is_refused(fresh: Checkout, name: str) -> None:
    (fresh.directory / name).symlink_to(fresh.directory / "nowhere")
    *_, line = fresh.snakemake("-n", "--", THEORY, status=1).splitlines()
    assert line.startswith(f"{fresh.directory / name}: expected a folder")


def test_a_cluster_that_does_not_answer_is_reported(
    fresh: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(fresh.directory / "none.conf"))
    wanted = "results/topic/lda/seed0/corpus.safetensors"
    profile = ["--workflow-profile", ROOT / "profiles/slurm"]
    printed = fresh.snakemake(*profile, "--", wanted, status=1, timeout=100)
    assert "SLURM does not answer here" in printed
    assert "Traceback" not in printed
