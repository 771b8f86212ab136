"""A training that is killed and started again ends as if nothing had happened, bit for bit.

Where the training is killed is left to chance: no step may matter.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml

from scripts.anatomy import artifacts

ROOT = Path(__file__).parents[2]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
STEPS = 500
CONFIG = {
    "compute": {"device": "cpu", "save_every": 0.02},
    "topic": {
        "seeds": [0],
        "corpora": {"lda": {"train": 200, "dev": 20}},
        "variants": {"long": {"model": {"attention": "trained"}, "steps": STEPS}},
    },
}
CORPUS = Path("results/topic/lda/seed0/corpus.safetensors")
RUN = Path("results/topic/lda/long/seed0")
OUTPUTS = ("weights.safetensors", "checkpoints.safetensors", "history.csv")
LOG = Path("logs/topic/lda/long/train.log")
PATIENCE = 120  # seconds, on a machine that is busy


class Training:
    """A folder in which snakemake trains the variant `long`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        self.command = [SNAKEMAKE, "-s", ROOT / "Snakefile", "--cores", "1"]
        self.command += ["--configfile", "mine.yaml"]

    def start(self) -> psutil.Popen:
        """Snakemake, in the background, as a process group of its own."""
        with (self.folder / "printed.txt").open("w") as printed:
            return psutil.Popen(
                [*self.command, "--", RUN / OUTPUTS[0]], cwd=self.folder, start_new_session=True,
                stdout=printed, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def finish(self) -> None:
        """Run snakemake to the end."""
        status = self.start().wait(PATIENCE)
        assert status == 0, self.printed

    def unlock(self) -> None:
        """What Snakemake asks a user to do after a kill -9."""
        subprocess.run([*self.command, "--unlock"], cwd=self.folder, check=True, timeout=PATIENCE)

    @property
    def printed(self) -> str:
        return (self.folder / "printed.txt").read_text("utf-8")

    @property
    def log(self) -> str:
        path = self.folder / LOG
        return path.read_text("utf-8") if path.exists() else ""

    @property
    def step(self) -> int:
        """Steps in the saved state."""
        path = self.folder / RUN / ".state/state.safetensors"
        return int(artifacts.read_metadata(path)["step"]) if path.exists() else 0

    def outputs(self) -> list[bytes]:
        """What the training made."""
        return [(self.folder / RUN / name).read_bytes() for name in OUTPUTS]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something to become true."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"waited in vain until {what}"
        time.sleep(0.005)


def started_until_a_random_step(training: Training) -> tuple[psutil.Popen, psutil.Process]:
    """A training under way: snakemake, and the process of the job."""
    snakemake = training.start()
    step = random.randrange(1, STEPS // 2)
    until(lambda: training.step >= step or snakemake.poll() is not None, f"step {step} is saved")
    assert snakemake.poll() is None, training.printed
    (job,) = [
        process
        for process in snakemake.children(recursive=True)
        if process.cmdline()[-1].endswith(".train.py")
    ]
    return snakemake, job


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training that nobody disturbed."""
    training = Training(tmp_path_factory.mktemp("uninterrupted"))
    training.finish()
    return training


@pytest.fixture
def training(tmp_path: Path, uninterrupted: Training) -> Training:
    """A training to be disturbed, its corpus in place."""
    training = Training(tmp_path)
    (tmp_path / CORPUS).parent.mkdir(parents=True)
    shutil.copy2(uninterrupted.folder / CORPUS, tmp_path / CORPUS)
    return training


def test_everything_killed(training: Training, uninterrupted: Training) -> None:
    """A power cut, or a batch system without patience, would cost the training so far."""
    snakemake, job = started_until_a_random_step(training)
    for process in (snakemake, job):
        process.kill()
    snakemake.wait(PATIENCE)
    until(lambda: not alive(job), "the job is dead")
    stopped_at = training.step
    assert training.start().wait(PATIENCE) == 1
    assert "--unlock" in training.printed  # Snakemake says what to do
    training.unlock()
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def test_snakemake_killed_and_its_job_lives_on(training: Training, uninterrupted: Training) -> None:
    """The orphan and the new job would write the same files in turn."""
    snakemake, orphan = started_until_a_random_step(training)
    snakemake.kill()
    snakemake.wait(PATIENCE)
    orphan.suspend()  # so that it is still there when the next one comes
    training.unlock()
    snakemake = training.start()
    until(lambda: "another process is training" in training.log, "the second job waits")
    assert not (training.folder / RUN / OUTPUTS[0]).exists()
    orphan.resume()
    assert snakemake.wait(PATIENCE) == 0, training.printed
    assert not alive(orphan)
    assert "going on" not in training.log and "steps/s" not in training.log  # nothing done twice
    assert training.outputs() == uninterrupted.outputs()


def test_job_terminated(training: Training, uninterrupted: Training) -> None:
    """A time limit of SLURM, which sends SIGTERM, would cost what was not saved yet."""
    snakemake, job = started_until_a_random_step(training)
    job.terminate()
    assert snakemake.wait(PATIENCE) == 1
    stopped_at = training.step
    assert f"stopped by signal 15 after step {stopped_at}" in training.log
    assert not any((training.folder / RUN / name).exists() for name in OUTPUTS)
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def test_interrupted_from_the_keyboard(training: Training, uninterrupted: Training) -> None:
    """Ctrl-C, to use the machine for something else, would cost the training so far."""
    snakemake, job = started_until_a_random_step(training)
    os.killpg(snakemake.pid, signal.SIGINT)  # a terminal sends it to all processes
    assert snakemake.wait(PATIENCE) != 0
    until(lambda: not alive(job), "the job has ended")
    stopped_at = training.step
    assert f"stopped by signal 2 after step {stopped_at}" in training.log
    training.finish()
    assert f"going on from step {stopped_at}" in training.log
    assert training.outputs() == uninterrupted.outputs()


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; an ended child of a killed parent may stay as a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
