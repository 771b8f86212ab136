"""A running training to be disturbed: shared by the tests of faults."""

import ast
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import yaml
from checkouts import ROOT, SNAKEMAKE, called

from scripts.anatomy import artifacts

STEPS = 500
CONFIG = {
    "compute": {"device": "cpu", "save_every": 0.02},
    "topic": {
        "seeds": [0],
        "corpora": {"lda": {"train": 200, "validation": 20}},
        "variants": {"long": {"model": {"attention": "trained"}, "steps": STEPS}},
    },
}
CORPUS = Path("results/topic/lda/seed0/corpus.safetensors")
RUN = Path("results/topic/lda/long/seed0")
OUTPUTS = ("weights.safetensors", "checkpoints.safetensors", "history.csv")
BENCHMARK = Path("logs/topic/lda/long/train.tsv")
LOG = Path("logs/topic/lda/long/train.log")
PATIENCE = 120  # seconds, on a machine that is busy


class Training:
    """A folder in which Snakemake trains the variant `long`."""

    def __init__(self, folder: Path, printed: str = "printed.txt") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        self._printed = folder.with_name(
            f"{folder.name}.{printed}"
        )  # beside the folder, whose disk may be full
        self.command = [SNAKEMAKE, "-s", ROOT / "Snakefile", "--cores", "1"]
        self.command += ["--configfile", "mine.yaml", "--benchmark-extended"]

    def take_corpus(self, other: "Training") -> None:
        """Copy the corpus of another training."""
        (self.folder / CORPUS).parent.mkdir(parents=True)
        shutil.copy2(other.folder / CORPUS, self.folder / CORPUS)

    def start(self, *options: str) -> psutil.Popen:
        """Start Snakemake in the background, in its own process group."""
        with self._printed.open("w") as printed:
            return psutil.Popen(
                [*self.command, *options, "--", RUN / OUTPUTS[0]], cwd=self.folder,
                start_new_session=True, stdout=printed, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def dry_run(self, status: int = 0) -> str:
        """Return what `snakemake -n` prints."""
        return called([*self.command, "-n", "--", RUN / OUTPUTS[0]], self.folder, status=status)

    def finish(self) -> None:
        """Run Snakemake to the end."""
        status = self.start().wait(PATIENCE)
        assert status == 0, self.printed

    def unlock(self) -> None:
        """Remove Snakemake's lock, as needed after a kill -9."""
        subprocess.run([*self.command, "--unlock"], cwd=self.folder, check=True, timeout=PATIENCE)

    @property
    def printed(self) -> str:
        return self._printed.read_text("utf-8")

    @property
    def log(self) -> str:
        path = self.folder / LOG
        return path.read_text("utf-8") if path.exists() else ""

    @property
    def step(self) -> int:
        """Return the number of steps in the saved state."""
        path = self.folder / RUN / ".state/state.safetensors"
        return int(artifacts.read_metadata(path)["step"]) if path.exists() else 0

    def memory(self) -> int:
        """Return the megabytes that the finished job requested."""
        (resources,) = pd.read_csv(self.folder / BENCHMARK, sep="\t")["resources"]
        return ast.literal_eval(resources)["mem_mb"]

    def outputs(self) -> list[bytes]:
        """Return the contents of all outputs."""
        return [(self.folder / RUN / name).read_bytes() for name in OUTPUTS]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition is true."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"timed out before: {what}"
        time.sleep(0.005)


def suspended_at_a_random_step(
    training: Training, *options: str
) -> tuple[psutil.Popen, psutil.Process]:
    """Start a training; return Snakemake's process and the suspended process of the job.

    Without the suspension, the job might end on a busy machine before the test continues.
    """
    snakemake = training.start(*options)
    step = random.randrange(1, STEPS // 2)
    until(lambda: training.step >= step or snakemake.poll() is not None, f"step {step} is saved")
    assert snakemake.poll() is None, training.printed
    (job,) = [
        process
        for process in snakemake.children(recursive=True)
        if process.cmdline()[-1].endswith(".train.py")
    ]
    job.suspend()
    assert training.step < STEPS
    return snakemake, job


def alive(process: psutil.Process) -> bool:
    """Return whether a process runs; an ended child of a killed parent may remain as a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
