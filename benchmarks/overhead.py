"""Measure the share of a run that goes to process start-up and scheduling.

A run can spend cores x wall-clock seconds. Its useful part is the lifetime of its jobs' processes
minus interpreter start and imports. Everything else is overhead: start-up, Snakemake's own start
and end, pauses between jobs, and cores that wait because no job is ready. Waiting cores are not
scheduling in the strict sense, so the share is an upper bound.

A hook on `import` (watch/sitecustomize.py) measures start-up inside the jobs, and so includes late
imports. There are three ways to run it:

- `python -m benchmarks overhead --full` runs `config.yaml` in a temporary folder. This is exact
  and takes minutes.
- `python -m benchmarks overhead` runs `config/smoke.yaml` in a temporary folder. If logs/ holds a
  finished run, the benchmark judges that run: it takes the seconds of its jobs from their
  benchmark files, and start-up from the same job of the smoke run, or else from jobs of the same
  kind. The seconds before the first and after the last job are those of the smoke run.
- Without a finished run, it reports the share of the smoke run without an aim. Trainings of the
  smoke run take 20 steps, so nearly all of it is start-up.
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
MAX_PAUSE = 30  # seconds without any job within one run


@dataclass(frozen=True)
class Job:
    """A job: its log, its threads, its start and end (Unix time), and its seconds of start-up."""

    log: str
    threads: int
    began: float
    ended: float
    start_up: float

    @property
    def useful(self) -> float:
        """Core seconds spent on work."""
        return self.threads * (self.ended - self.began - self.start_up)


def measure(*, full: bool = False) -> Result:
    """Measure the share in a run of config.yaml, or in the smoke run without a finished one."""
    load = os.getloadavg()[0]
    note = f"load average {load:.1f} at the start; this benchmark needs {CORES} idle cores"
    overlay = [] if full else ["--configfile", str(ROOT / "config/smoke.yaml")]
    jobs, wall = run_workflow(overlay)
    if full:
        return result("config.yaml, run now", jobs, CORES, wall, AIM, note)
    finished = finished_run(ROOT / "logs", jobs)
    if finished and max_pause(finished) < MAX_PAUSE:
        cores = max_threads(finished)
        wall = span(finished) + wall - span(jobs)
        return result("the finished run in logs/", finished, cores, wall, AIM, note)
    why = "logs/ has several runs" if finished else "logs/ is empty"
    note = f"no aim for so small a run, and {why}: try --full; {note}"
    return result("config/smoke.yaml", jobs, CORES, wall, None, note)


def result(
    what: str, jobs: list[Job], cores: int, wall: float, aim: float | None, note: str
) -> Result:
    """Return the share and its two parts."""
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
    """Run the workflow in a temporary folder; return its jobs and the seconds of the command.

    Raises:
        RuntimeError: The run failed; the message has the end of the output of Snakemake.
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
    """Return the jobs with benchmark files, with the start-up and threads of known jobs."""
    by_name, by_kind = defaultdict(list), defaultdict(list)
    for job in known:
        by_name[_name(job.log)].append(job)
        by_kind[_kind(job.log)].append(job)
    jobs = []
    for file in sorted(logs.rglob("*.tsv")):
        log = f"logs/{file.relative_to(logs).with_suffix('.log')}"
        models = by_name[_name(log)] or by_kind[_kind(log)] or known
        ended = file.stat().st_mtime
        seconds = float(file.read_text(encoding="utf-8").splitlines()[1].split("\t")[0])
        start_up = min(statistics.mean(job.start_up for job in models), seconds)
        jobs.append(Job(log, models[0].threads, ended - seconds, ended, start_up))
    return jobs


def _name(log: str) -> str:
    """Return the name of a job without its seed."""
    return re.sub(r"seed\d+", "seed", log)


def _kind(log: str) -> tuple[int, str]:
    """Return what jobs of a rule share: the depth of the log and its file name."""
    return len(Path(log).parts), Path(log).name


def span(jobs: Iterable[Job]) -> float:
    """Return the seconds from the first start to the last end."""
    return max(job.ended for job in jobs) - min(job.began for job in jobs)


def max_pause(jobs: list[Job]) -> float:
    """Return the maximum of seconds without any job between the first and the last."""
    pause, until = 0.0, min((job.began for job in jobs), default=0.0)
    for job in sorted(jobs, key=lambda job: job.began):
        pause = max(pause, job.began - until)
        until = max(until, job.ended)
    return pause


def max_threads(jobs: list[Job]) -> int:
    """Return the maximum of threads in use at the same time: the cores of the run."""
    changes = [(job.began, job.threads) for job in jobs]
    # a little early: times are rounded, and the next job starts immediately
    changes += [(job.ended - 0.1, -job.threads) for job in jobs]
    running = maximum = 0
    for _, change in sorted(changes):
        running += change
        maximum = max(maximum, running)
    return maximum
