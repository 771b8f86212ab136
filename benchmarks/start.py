"""What it takes until Snakemake knows what to do, beside an empty workflow.

Every command starts with it, and on a cluster every submission. Once with the default configuration
on the results that are there (nothing to do, if they are finished), and once with the papers' sizes
and twenty seeds in every study, nothing there yet. Seconds are the processes' own on the CPU, which
a busy machine stretches least. Aims: under 4 seconds and 300 MB, and under 20 seconds.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import yaml

from benchmarks.comparison import ROOT, Result

SEEDS = [*range(20)]
OF_STUDIES = ("topic", "text", "embedding", "lego", "pretraining")
REPEATS = 3
AIM = 300.0  # percent
EMPTY = "rule all:\n    default_target: True\n"


def measure() -> Result:
    """Start Snakemake on each in turn."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "Snakefile").write_text(EMPTY, encoding="utf-8")
        seeds: dict[str, dict] = {study: {"seeds": SEEDS} for study in OF_STUDIES}
        seeds["embedding"]["finetuning"] = {"seeds": SEEDS}
        overlay = place / "seeds.yaml"
        overlay.write_text(yaml.safe_dump(seeds), encoding="utf-8")
        (place / "new").mkdir()
        ours = ["--snakefile", ROOT / "Snakefile", "--directory"]
        finished = (ROOT / "results/claims.csv").exists()
        commands = {
            "empty workflow": ["--snakefile", place / "Snakefile", "--directory", folder],
            "config.yaml": [*ours, ROOT if finished else place / "new"],
            "config/paper.yaml, twenty seeds": [
                *ours, place / "new", "--configfile", ROOT / "config/paper.yaml", overlay,
            ],
        }  # fmt: skip
        runs = [
            {name: started(command) for name, command in commands.items()} for _ in range(REPEATS)
        ]
    seconds = {name: median(run[name][0] for run in runs) for name in commands}
    memory = max(run["config.yaml"][1] for run in runs)
    return Result(
        what="a start of Snakemake with config.yaml, as a share of one with an empty workflow",
        ratio=100 * seconds["config.yaml"] / seconds["empty workflow"],
        unit="%",
        aim=AIM,
        details=seconds | {"MB of memory with config.yaml": memory},
        note="CPU seconds of a dry run; "
        + (
            "on the results that are there"
            if finished
            else "no results yet, so there is more to plan"
        ),
    )


def started(arguments: list[str | Path]) -> tuple[float, float]:
    """CPU seconds and peak MB of a dry run."""
    command = [Path(sys.executable).with_name("snakemake"), "--dry-run", "--quiet", "all"]
    process = subprocess.Popen(
        [*command, "--cores", "2", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"snakemake {' '.join(map(str, arguments))} has failed")
    to_mb = 1024**2 if sys.platform == "darwin" else 1024
    return used.ru_utime + used.ru_stime, used.ru_maxrss / to_mb
