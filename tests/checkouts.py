"""Copies of the project to run, edit and plan again, the way its users do: by the command line."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from filelock import FileLock

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
    """What a dry run would do, `all` left out: jobs by rule, and the message of every job."""

    rules: dict[str, int]
    messages: set[str]


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
        """A command line of snakemake."""
        place = ["-s", self.source / "Snakefile"] if self.source != self.directory else []
        configfile = [] if "--configfile" in arguments else ["--configfile", self.overlay]
        return [*self.prefix, SNAKEMAKE, *place, "--cores", "2", *configfile, *arguments]

    def snakemake(self, *arguments: str | Path, status: int = 0, timeout: float = 900) -> str:
        """Everything that snakemake prints; it must end with the exit status `status`."""
        return called(self.command(*arguments), self.directory, status=status, timeout=timeout)

    def plan(self, *arguments: str | Path) -> Plan:
        """What snakemake would do."""
        printed = self.snakemake("-n", *arguments)
        if "Nothing to be done" in printed:
            return NOTHING
        table = re.search(r"^Job stats:\njob .*\n-.*\n((?:\w+ +\d+\n)+)", printed, re.M)
        assert table, printed
        rules = {rule: int(count) for rule, count in map(str.split, table[1].splitlines())}
        del rules["total"]
        rules.pop("all", None)
        return Plan(rules, set(re.findall(r"^ *Job \d+: (.*)$", printed, re.M)))

    def by_hand(self, module: str, *arguments: str | Path, status: int = 0) -> str:
        """What `python -m module` prints."""
        command = [sys.executable, "-m", module, *arguments, "--configfile", self.overlay]
        return called(command, self.source, status=status)

    def log_of_failure(self, printed: str) -> str:
        """The log of the job that failed, in what snakemake printed."""
        (line,) = [line for line in printed.splitlines() if line.strip().startswith("log: ")]
        log = (self.directory / line.split()[1]).read_text(encoding="utf-8")
        assert log in printed  # on the terminal as well
        assert "Traceback" not in log
        return log

    def path(self, name: str) -> Path:
        """A file among the results."""
        return self.directory / "results" / name

    def write(self, overlay: dict[str, Any]) -> None:
        """Makes a mapping the overlay on config.yaml."""
        self.overlay.write_text(yaml.safe_dump(overlay, sort_keys=False), encoding="utf-8")

    def configure(self, **changes: Any) -> None:
        """Lays changes over the overlay."""
        overlay = yaml.safe_load(self.overlay.read_text(encoding="utf-8"))
        self.write(merged(overlay, changes))

    def substitute(self, pattern: str, replacement: str, file: str) -> None:
        """Replaces all that a regular expression finds in a source file; it must find something."""
        path = self.source / file
        text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), flags=re.M)
        assert count, f"{pattern} is not in {file}"
        path.write_text(text, encoding="utf-8")

    def edit(self, file: str, function: str) -> None:
        """Puts one more statement into a function of a source file."""
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
    command: list[str | Path], folder: Path, *, status: int = 0, timeout: float = 900
) -> str:
    """What a command prints; it must end with the exit status `status`."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=timeout,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


def copied(source: Path, target: Path, *, results: bool = False) -> Path:
    """A copy of the project in `source`, on demand with all that it has made; dates are kept."""
    target.mkdir(parents=True)
    made = ["mine.yaml", "inputs", "results", "logs", ".snakemake"] if results else []
    for name in SOURCES + made:
        place = source / name
        if place.is_dir():
            shutil.copytree(place, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(place, target / name)
    return target


def once(base: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made once for all workers. Only to copy."""
    mark = base / f"{name}-finished"
    with FileLock(base / f"{name}.lock"):
        if not mark.exists():
            make(base / name)
            mark.touch()
    return base / name


def smoked(folder: Path, *arguments: str | Path) -> str:
    """Makes a project in a folder and runs config/smoke.yaml in it; what snakemake prints."""
    project = Checkout(copied(ROOT, folder))
    project.write(yaml.safe_load(SMOKE.read_text(encoding="utf-8")))
    return project.snakemake(*arguments, timeout=1500)


def tiny() -> dict[str, Any]:
    """The overlay of tiny.yaml, with null for all that config.yaml has beyond it."""
    base, own = (
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / "config.yaml", Path(__file__).with_name("tiny.yaml"))
    )
    for place in NAMED:
        there, here = base, own
        for key in place:
            there, here = there.get(key, {}), here.setdefault(key, {})
        here |= dict.fromkeys(there.keys() - here.keys())
    return own


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """One mapping laid over another, as --configfile does."""
    result = dict(base)
    for key, value in changes.items():
        deeper = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if deeper else value
    return result
