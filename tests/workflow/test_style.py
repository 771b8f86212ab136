"""The habits of the project: layout, complete rules, a schema in step, layers in one direction."""

import ast
import re
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkouts import NAMED, ROOT, SNAKEMAKE, called

from scripts.anatomy import configuration

RULES = {
    match[1]: match[0]
    for file in sorted((ROOT / "rules").glob("*.smk"))
    for match in re.finditer(r"^rule (\w+):\n(?:(?:    .*)?\n)*", file.read_text("utf-8"), re.M)
}
JOBS = {name: text for name, text in RULES.items() if "    output:" in text}
PYTHON = [path for path in sorted((ROOT / "scripts").rglob("*.py")) if path.stat().st_size]
LIBRARY = [path for path in PYTHON if path.is_relative_to(ROOT / "scripts/anatomy")]
STUDIES = {"topic", "text", "embedding", "lego", "pretraining"}
RUFF = [sys.executable, "-m", "ruff"]


def of(path: Path) -> str:
    """A file's name in the repository."""
    return str(path.relative_to(ROOT))


# --- formatting and lint ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        [*RUFF, "check", "."],
        [*RUFF, "format", "--check", "."],
        [sys.executable, "-m", "snakefmt", "--check", "Snakefile", "rules"],
    ],
    ids=["ruff check", "ruff format", "snakefmt"],
)
def test_style(command: list[str]) -> None:
    """Changes would drown in reformatted lines."""
    called(command, ROOT)


def test_snakemake_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    """The workflow catalogue, and users who check, would find faults."""
    command = [SNAKEMAKE, "--lint", "-s", ROOT / "Snakefile"]
    assert "in a good condition" in called(command, tmp_path)


# --- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", JOBS)
def test_a_rule_is_complete(rule: str) -> None:
    """A job would run without a log, a limit for the scheduler, or the code trigger."""
    text = JOBS[rule]
    directives = re.findall(r"^    (\w+):", text, re.M)
    wanted = ["output", "log", "conda", "threads", "resources", "params", "message", "script"]
    wanted.append("cache" if "cache" in directives else "benchmark")  # Snakemake forbids both
    assert [name for name in wanted if name not in directives] == []
    assert {"mem_mb", "runtime"} <= {*re.findall(r"^        (\w+)=", text, re.M)}
    (script,) = re.findall(r'script:\n        "\.\./scripts/(.*)"', text)
    assert f'code=code("{script}"),' in text
    (message,) = re.findall(r"message:\n        (.*)\n(?:    \w|\n|\Z)", text)
    assert message.startswith('"')


@pytest.mark.parametrize("rule", JOBS)
def test_a_rule_asks_for_a_gpu_if_its_script_uses_one(rule: str) -> None:
    """Trainings would run on the CPU of a GPU box, or tables wait for a free GPU."""
    (script,) = re.findall(r'script:\n        "\.\./(.*)"', JOBS[rule])
    uses = "job.compute(" in (ROOT / script).read_text("utf-8")
    assert ("gpu=1" in JOBS[rule]) == uses


def test_a_rule_shares_submissions_or_runs_on_the_login_node() -> None:
    """The queue of a cluster would drown in jobs of seconds."""
    snakefile = (ROOT / "Snakefile").read_text("utf-8")
    (names,) = re.findall(r"^localrules:\n((?:    \w+,\n)+)", snakefile, re.M)
    local = {*re.findall(r"\w+", names)} - {"all"}
    assert local <= RULES.keys()
    grouped = {name for name, text in JOBS.items() if re.search(r"^    group:", text, re.M)}
    assert JOBS.keys() - local == grouped
    profile = yaml.safe_load((ROOT / "profiles/slurm/profile.yaml").read_text("utf-8"))
    merged = {entry.split("=")[0] for entry in profile["group-components"]}
    studies = re.findall(r'group:\n        trainings\("(\w+)"\)', "".join(JOBS.values()))
    named = re.findall(r'group:\n        "(\w+)"', "".join(JOBS.values()))
    assert merged == {*named, *(f"{study}_trainings" for study in studies)}


def test_rules_are_jobs_or_named_targets() -> None:
    """A rule without a script would escape the code trigger."""
    assert RULES.keys() - JOBS.keys() == {*STUDIES, "claims"}
    assert not [name for name, text in RULES.items() if re.search(r"^    (run|shell):", text, re.M)]


def test_every_script_belongs_to_a_rule() -> None:
    """Dead code would look like part of the study."""
    named = {name for text in JOBS.values() for name in re.findall(r'"\.\./(scripts/.*)"', text)}
    scripts = {of(path) for path in PYTHON if path not in LIBRARY}
    by_hand = {"scripts/embedding/search.py"}
    assert scripts - {"scripts/job.py"} == named | by_hand


# --- configuration ------------------------------------------------------------------------------


def test_the_schema_is_generated_from_the_models() -> None:
    """Editors that complete config.yaml would offer keys that are errors."""
    written = (ROOT / configuration.SCHEMA).read_text("utf-8")
    assert written == configuration.schema(), "run python -m scripts.anatomy.configuration"


def test_every_key_is_explained() -> None:
    """Who writes an own variant would have to read the code."""
    models = [configuration.Config.model_json_schema()]
    models += models[0].pop("$defs").values()
    unexplained = [
        f"{model['title']}.{key}"
        for model in models
        for key, field in model.get("properties", {}).items()
        if "description" not in field and key != "kind"
    ]
    assert unexplained == []


def test_every_top_level_key_of_the_configuration_has_a_comment() -> None:
    """config.yaml is the manual."""
    text = (ROOT / "config.yaml").read_text("utf-8")
    lines = text.splitlines()
    keys = [place for place, line in enumerate(lines) if re.match(r"(  )?\w+:", line)]
    bare = [lines[place] for place in keys if not lines[place - 1].lstrip().startswith("#")]
    # explained with the key before it; names that the user gives
    exempt = {"compile", "directions", *yaml.safe_load(text)["models"]}
    assert {line.split(":")[0].strip() for line in bare} <= exempt


@pytest.mark.parametrize("name", ["smoke", "paper"])
def test_an_overlay_names_nothing_that_is_not_there(name: str) -> None:
    """A variant renamed in config.yaml would live on in an overlay, with default settings."""
    base = yaml.safe_load((ROOT / "config.yaml").read_text("utf-8"))
    overlay = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text("utf-8"))
    unknown = [
        ".".join([*place, name])
        for place in NAMED
        for name, entry in at(overlay, place).items()
        if name not in at(base, place) and not (entry and OWN & entry.keys())
    ]
    assert unknown == []


# keys that only an entry of the overlay's own needs
OWN = {"kind", "matrix", "n", "task", "of", "a", "data", "lower"}


def at(config: dict[str, Any], place: Sequence[str]) -> dict[str, Any]:
    """The section at a place; empty if there is none."""
    return reduce(lambda section, key: section.get(key, {}), place, config)


# --- layers -------------------------------------------------------------------------------------


def imported(path: Path) -> set[str]:
    """The modules that a file imports, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", LIBRARY, ids=of)
def test_the_library_knows_neither_snakemake_nor_the_scripts(path: Path) -> None:
    """The mathematics could not be used, or tested, without the workflow."""
    names = imported(path)
    assert not {name for name in names if name.split(".")[0] == "snakemake"}
    local = {name for name in names if name.startswith("scripts.")}
    assert all(name.startswith("scripts.anatomy.") for name in local)


@pytest.mark.parametrize("path", LIBRARY, ids=of)
def test_the_library_of_a_study_imports_no_other_study(path: Path) -> None:
    folder = path.relative_to(ROOT / "scripts/anatomy").parts[0]
    if folder in STUDIES or folder == "models":
        studies = {name.split(".")[2] for name in imported(path) if "scripts.anatomy." in name}
        assert studies & STUDIES <= {folder}


def test_names_say_what_is_inside() -> None:
    """A file called utils is where code goes to be lost."""
    vague = {"utils", "util", "helpers", "misc", "common"}
    assert [of(path) for path in PYTHON if {*path.with_suffix("").parts} & vague] == []


def test_only_scripts_that_compute_wait_for_torch() -> None:
    """Every figure and every table would start seconds later, and take half a gigabyte more."""
    light = [path for path in PYTHON if path not in LIBRARY]
    light = [of(path) for path in light if "job.compute(" not in path.read_text("utf-8")]
    light.remove("scripts/models/topic.py")  # saves a model by the library that reads it
    light.remove("scripts/models/pretraining.py")  # the same
    names = [name.removesuffix(".py").replace("/", ".") for name in light]
    program = (
        f"import sys, {', '.join(names)}; print({{'torch', 'transformers'}} & {{*sys.modules}})"
    )
    assert called([sys.executable, "-c", program], ROOT) == "set()\n"
