"""Measure how long Snakemake takes to plan, compared with an empty workflow.

Every command begins with planning, and so does every submission on a cluster. One measurement uses
the default configuration with the results that exist, the other the papers' sizes with twenty seeds
in every study and no results. Seconds are CPU seconds of the process, which a busy machine affects
least. Aims: under 4 seconds and 300 MB, and under 20 seconds.
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
STUDIES = ("topic", "text", "embedding", "lego", "pretraining")
REPEATS = 3
AIM = 300.0  # percent
EMPTY = "rule all:\n    default_target: True\n"


def measure() -> Result:
    """Plan each workflow in turn."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "Snakefile").write_text(EMPTY, encoding="utf-8")
        seeds: dict[str, dict] = {study: {"seeds": SEEDS} for study in STUDIES}
        seeds["embedding"]["finetuning"] = {"seeds": SEEDS}
        overlay = root / "seeds.yaml"
        overlay.write_text(yaml.safe_dump(seeds), encoding="utf-8")
        (root / "new").mkdir()
        ours = ["--snakefile", ROOT / "Snakefile", "--directory"]
        finished = (ROOT / "results/claims.csv").exists()
        commands = {
            "empty workflow": ["--snakefile", root / "Snakefile", "--directory", folder],
            "config.yaml": [*ours, ROOT if finished else root / "new"],
            "config/paper.yaml, twenty seeds": [
                *ours, root / "new", "--configfile", ROOT / "config/paper.yaml", overlay,
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
            "with the results that exist"
            if finished
            else "without results, so there is more to plan"
        ),
    )


def started(arguments: list[str | Path]) -> tuple[float, float]:
    """Return the CPU seconds and the peak MB of a dry run."""
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
