"""Copies of the project that tests run and edit, from the command line, as users do."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml
from filelock import FileLock
from snakemake_logger_plugin_jobs import PREFIX

from scripts import job

ROOT = Path(__file__).parents[1]
SOURCES = [
    *("Snakefile", "config.yaml", "claims.yaml"),
    *("config", "envs", "profiles", "report", "rules", "schemas", "scripts"),
]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
SMOKE = ROOT / "config/smoke.yaml"
# Sections whose keys are names that the user gives
NAMED = [
    ("models",),
    *(("topic", section) for section in ("corpora", "variants", "grids")),
    ("text", "corpora"),
    *(("embedding", section) for section in ("readings", "golden")),
    ("embedding", "alignment", "pairs"),
    *(("embedding", "finetuning", section) for section in ("labelled", "runs", "adapters")),
    ("embedding", "translation", "pairs"),
    *(("lego", section) for section in ("tasks", "variants", "comparisons")),
    *(("pretraining", section) for section in ("variants", "comparisons")),
]


class Plan(NamedTuple):
    """The jobs of a dry run without `all`: how many of each rule, and each with its wildcards."""

    rules: dict[str, int]
    jobs: set[str]  # for example "topic_train lda value_squared"


NOTHING = Plan({}, set())


class Checkout:
    """A Snakefile with what it needs, a folder for the results, and an overlay on config.yaml."""

    def __init__(
        self, source: Path, directory: Path | None = None, *, inputs: Path | None = None
    ) -> None:
        self.source = source
        self.directory = directory or source
        self.directory.mkdir(parents=True, exist_ok=True)
        self.prefix: list[str | Path] = []  # a command in which snakemake is run
        if inputs:
            shutil.copytree(inputs, self.directory / "inputs")
        self.overlay = self.directory / "mine.yaml"
        if not self.overlay.exists():
            self.write(tiny())

    def command(self, *arguments: str | Path) -> list[str | Path]:
        """Return a command line of snakemake."""
        snakefile = ["-s", self.source / "Snakefile"] if self.source != self.directory else []
        configfile = [] if "--configfile" in arguments else ["--configfile", self.overlay]
        return [*self.prefix, SNAKEMAKE, *snakefile, "--cores", "2", *configfile, *arguments]

    def snakemake(self, *arguments: str | Path, status: int = 0, **options: Any) -> str:
        """Return what snakemake prints; assert that it ends with the exit status `status`."""
        return called(self.command(*arguments), self.directory, status=status, **options)

    def plan(self, *arguments: str | Path) -> Plan:
        """Return the jobs that snakemake would run."""
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        printed = self.snakemake("-n", "--logger", "jobs", *arguments, env=env).splitlines()
        lines = {line.removeprefix(PREFIX) for line in printed if line.startswith(PREFIX)}
        jobs = lines - {"all"}
        return Plan(dict(Counter(job.split()[0] for job in jobs)), jobs)

    def failure(self, *arguments: str | Path) -> str:
        """Return the last line of the log of the job that fails."""
        return self.log_of_failure(self.snakemake(*arguments, status=1)).splitlines()[-1]

    def standalone(self, module: str, *arguments: str | Path, status: int = 0) -> str:
        """Return what a script prints that is run as `python -m module`."""
        command = [sys.executable, "-m", module, *arguments, "--configfile", self.overlay]
        return called(command, self.source, status=status)

    def log_of_failure(self, printed: str) -> str:
        """Return the log of the job that failed, which is part of what snakemake printed."""
        (line,) = [line for line in printed.splitlines() if line.strip().startswith("log: ")]
        log = (self.directory / line.split()[1]).read_text(encoding="utf-8")
        assert log in printed
        assert "Traceback" not in log
        return log

    def path(self, name: str) -> Path:
        """Return the path of a result."""
        return self.directory / "results" / name

    def write(self, overlay: dict[str, Any]) -> None:
        """Write the overlay on config.yaml."""
        self.overlay.write_text(yaml.safe_dump(overlay, sort_keys=False), encoding="utf-8")

    def configure(self, **changes: Any) -> None:
        """Merge changes into the overlay."""
        overlay = yaml.safe_load(self.overlay.read_text(encoding="utf-8"))
        self.write(merged(overlay, changes))

    def substitute(self, pattern: str, replacement: str, file: str) -> None:
        """Replace what a regular expression matches in a source file; assert that it matches."""
        path = self.source / file
        text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), flags=re.M)
        assert count, f"{pattern} is not in {file}"
        path.write_text(text, encoding="utf-8")

    def edit(self, file: str, function: str) -> None:
        """Add a statement to a function of a source file."""
        path = self.source / file
        text = path.read_text(encoding="utf-8")
        (body,) = [
            node.body
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and node.name == function
        ]
        last = body[-1]
        lines = text.splitlines(keepends=True)
        lines.insert(last.lineno - 1, " " * last.col_offset + "edited = True\n")
        path.write_text("".join(lines), encoding="utf-8")


def called(
    command: list[str | Path],
    folder: Path,
    *,
    status: int = 0,
    timeout: float = 900,
    **options: Any,
) -> str:
    """Return what a command prints; assert that it ends with the exit status `status`."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=timeout, **options,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


@cache
def workflow() -> Any:
    """Return the workflow as Snakemake loads it with config.yaml, for tests of its rules."""
    with TemporaryDirectory() as folder, chdir(folder), job._workflow({}) as loaded:
        return loaded


def copied(source: Path, target: Path, *, results: bool = False) -> Path:
    """Copy the project in `source`, with its results if asked, and keep dates; return `target`."""
    target.mkdir(parents=True)
    made = ["mine.yaml", "inputs", "results", "logs", ".snakemake"] if results else []
    for path in (source / name for name in SOURCES + made):
        if path.is_dir():
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, target)
    return target


def once(base: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first worker makes; tests may read and copy it."""
    mark = base / f"{name}-finished"
    with FileLock(base / f"{name}.lock"):
        if not mark.exists():
            make(base / name)
            mark.touch()
    return base / name


def smoked(folder: Path, *arguments: str | Path) -> str:
    """Copy the project, run config/smoke.yaml in the copy, and return what snakemake prints."""
    project = Checkout(copied(ROOT, folder))
    project.write(yaml.safe_load(SMOKE.read_text(encoding="utf-8")))
    return project.snakemake(*arguments, timeout=1500)


def tiny() -> dict[str, Any]:
    """Return the overlay tiny.yaml, with null for named entries that only config.yaml has."""
    base, own = (
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / "config.yaml", Path(__file__).with_name("tiny.yaml"))
    )
    for section in NAMED:
        theirs, ours = base, own
        for key in section:
            theirs, ours = theirs.get(key, {}), ours.setdefault(key, {})
        ours |= dict.fromkeys(theirs.keys() - ours.keys())
    return own


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping with changes merged into it, as --configfile does."""
    result = dict(base)
    for key, value in changes.items():
        deeper = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if deeper else value
    return result
