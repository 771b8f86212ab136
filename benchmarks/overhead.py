"""The share of a run that goes to process start-up and scheduling.

A run has cores x wall-clock seconds to spend. Useful is what its jobs spend at work: the life of a
job's process less starting the interpreter and importing. All else counts as overhead: start-up,
Snakemake's own start and end, its pauses between jobs, and cores that wait because no job is
ready. The last are not scheduling in the strict sense, so the share is an upper bound.

Start-up is measured in the jobs themselves, by a hook on `import` (watch/sitecustomize.py), so
that it is known to what a job really loads. Three ways to a number:

- `python -m benchmarks overhead --full` runs `config.yaml` in a temporary folder. Exact; minutes.
- `python -m benchmarks overhead` runs `config/smoke.yaml` in a temporary folder. Where logs/ holds
  a finished run, that is judged: its jobs' seconds from their benchmark files, less the start-up
  that the smoke run found in the same job, or on average in jobs alike where it has none of that
  name. What Snakemake spends before the first and after the last job is the smoke run's too.
- Without a finished run the smoke run's own share is shown, without an aim: its trainings take
  20 steps, so it is nearly all start-up and says little about a real run.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import ROOT, Result

CORES = 2
AIM = 15
LONGEST_PAUSE = 30  # seconds without any job; more than that lies between two runs


@dataclass(frozen=True)
class Job:
    """One job: its log and threads, when it ran (Unix time), and its seconds of start-up."""

    log: str
    threads: int
    began: float
    ended: float
    start_up: float

    @property
    def useful(self) -> float:
        """Core seconds at work."""
        return self.threads * (self.ended - self.began - self.start_up)


def measure(*, full: bool = False) -> Result:
    """The share in config.yaml's run, or in the smoke run where there is no finished one."""
    load = os.getloadavg()[0]
    note = f"load average {load:.1f} at the start; this one wants {CORES} idle cores"
    overlay = [] if full else ["--configfile", str(ROOT / "config/smoke.yaml")]
    jobs, wall = run_workflow(overlay)
    if full:
        return result("config.yaml, run now", jobs, CORES, wall, AIM, note)
    finished = finished_run(ROOT / "logs", jobs)
    if finished and longest_pause(finished) < LONGEST_PAUSE:
        cores = most_at_once(finished)
        wall = span(finished) + wall - span(jobs)
        return result("the finished run in logs/", finished, cores, wall, AIM, note)
    why = "logs/ is of several runs" if finished else "logs/ is empty"
    note = f"no aim for so small a run, and {why}: try --full; {note}"
    return result("config/smoke.yaml", jobs, CORES, wall, None, note)


def result(
    what: str, jobs: list[Job], cores: int, wall: float, aim: float | None, note: str
) -> Result:
    """The share, and its two parts."""
    spent = cores * wall
    useful = sum(job.useful for job in jobs)
    start_up = sum(job.threads * job.start_up for job in jobs)
    return Result(
        what=f"start-up and scheduling, share of cores x time: {what}",
        ratio=100 * (1 - useful / spent),
        unit="%",
        aim=aim,
        details={
            "jobs": len(jobs),
            "cores": cores,
            "wall": wall,
            "useful core seconds": useful,
            "start-up of a job": statistics.mean(job.start_up for job in jobs),
            "start-up %": 100 * start_up / spent,
            "scheduling and idle cores %": 100 * (1 - (useful + start_up) / spent),
        },
        note=note,
    )


def run_workflow(options: list[str]) -> tuple[list[Job], float]:
    """Run the workflow in a temporary folder; its jobs, and the seconds of the whole command.

    Raises:
        RuntimeError: The run failed; with the end of what Snakemake said.
    """
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "job_times.jsonl"
        watch = str(ROOT / "benchmarks/watch")
        command = [sys.executable, "-m", "snakemake", "--cores", str(CORES)]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, "--directory", folder, *options],
            cwd=ROOT,
            env=os.environ | {"JOB_TIMES": str(times), "PYTHONPATH": watch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wall = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"the run failed:\n{done.stdout[-3000:]}")
        lines = times.read_text(encoding="utf-8").splitlines()
        return [Job(**json.loads(line)) for line in lines], wall


def finished_run(logs: Path, known: list[Job]) -> list[Job]:
    """The jobs that left benchmark files, with the start-up and threads of those known."""
    by_name, alike = defaultdict(list), defaultdict(list)
    for job in known:
        by_name[_name(job.log)].append(job)
        alike[_shape(job.log)].append(job)
    jobs = []
    for file in sorted(logs.rglob("*.tsv")):
        log = f"logs/{file.relative_to(logs).with_suffix('.log')}"
        models = by_name[_name(log)] or alike[_shape(log)] or known
        ended = file.stat().st_mtime
        seconds = float(file.read_text(encoding="utf-8").splitlines()[1].split("\t")[0])
        start_up = min(statistics.mean(job.start_up for job in models), seconds)
        jobs.append(Job(log, models[0].threads, ended - seconds, ended, start_up))
    return jobs


def _name(log: str) -> str:
    """A job's name, the same for every seed."""
    return re.sub(r"seed\d+", "seed", log)


def _shape(log: str) -> tuple[int, str]:
    """What jobs of a rule have in common: how deep the log lies, and its file name."""
    return len(Path(log).parts), Path(log).name


def span(jobs: Iterable[Job]) -> float:
    """Seconds from the first start to the last end."""
    return max(job.ended for job in jobs) - min(job.began for job in jobs)


def longest_pause(jobs: list[Job]) -> float:
    """Most seconds without any job between the first and the last."""
    max_length, until = 0.0, min((job.began for job in jobs), default=0.0)
    for job in sorted(jobs, key=lambda job: job.began):
        max_length = max(max_length, job.began - until)
        until = max(until, job.ended)
    return max_length


def most_at_once(jobs: list[Job]) -> int:
    """Threads of the jobs that ran at the same time, at the most: the cores that the run had."""
    changes = [(job.began, job.threads) for job in jobs]
    # a little early: times are rounded, and the next job starts at once
    changes += [(job.ended - 0.1, -job.threads) for job in jobs]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most
