"""The conventions of the project: format, complete rules, explained keys, layers of code."""

import ast
import re
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkouts import NAMED, ROOT, SNAKEMAKE, called, workflow

from scripts.anatomy import configuration

PYTHON = [path for path in sorted((ROOT / "scripts").rglob("*.py")) if path.stat().st_size]
LIBRARY = [path for path in PYTHON if path.is_relative_to(ROOT / "scripts/anatomy")]
STUDIES = {"topic", "text", "embedding", "lego", "pretraining"}
RUFF = [sys.executable, "-m", "ruff"]
CACHED = {"text_corpus", "text_topics"}  # Snakemake measures no job that a cache may replace
USES_A_GPU = re.compile(r"job\.(compute|trainings)\(")


def of(path: Path) -> str:
    """Return a file's name in the repository."""
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
def test_the_formatters_have_nothing_to_change(command: list[str]) -> None:
    """Ruff and snakefmt pass."""
    called(command, ROOT)


def test_snakemake_lint_passes(tmp_path: Path) -> None:
    """`snakemake --lint` reports nothing."""
    command = [SNAKEMAKE, "--lint", "-s", ROOT / "Snakefile"]
    assert "in a good condition" in called(command, tmp_path)


# --- rules --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    """Return the rules that make files."""
    return {rule.name: rule for rule in workflow().rules if rule.output}


def script(rule: Any) -> str:
    """Return the path of a rule's script below scripts/."""
    return rule.script.removeprefix("../scripts/")


def profile(name: str) -> dict[str, Any]:
    """Return a profile."""
    return yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    "part",
    [
        lambda rule: rule.log,
        lambda rule: rule.benchmark or rule.name in CACHED,
        lambda rule: rule.conda_env == workflow().globals["CONDA"],
        lambda rule: dict(rule.params.items())["code"] == workflow().globals["code"](script(rule)),
        lambda rule: rule.message,
        lambda rule: not rule.is_run and rule.shellcmd is None,
    ],
    ids=["log", "benchmark", "conda", "digest of the script's code", "message", "script only"],
)
def test_a_rule_is_complete(jobs: dict[str, Any], part: Any) -> None:
    """Each rule that makes files has what a job needs, and runs a script."""
    assert [name for name, rule in jobs.items() if not part(rule)] == []


@pytest.mark.parametrize("name", ["default", "slurm"])
def test_a_profile_requests_memory_and_time_for_every_job(name: str) -> None:
    """A job whose rule states no memory or time requests the profile's."""
    assert {"mem_mb", "runtime"} <= profile(name)["default-resources"].keys()


def test_a_rule_requests_a_gpu_if_its_script_uses_one(jobs: dict[str, Any]) -> None:
    """`gpu` is among a rule's resources if and only if its script leases a device."""
    using = {
        name
        for name, rule in jobs.items()
        if USES_A_GPU.search((ROOT / "scripts" / script(rule)).read_text("utf-8"))
    }
    assert using == {name for name, rule in jobs.items() if "gpu" in rule.resources}


def test_a_rule_is_local_or_in_a_group_of_the_slurm_profile(jobs: dict[str, Any]) -> None:
    """Each job runs on the login node or shares a submission, whose size the profile states."""
    groups = {name: rule.ruleinfo.group for name, rule in jobs.items()}
    local = jobs.keys() & workflow()._localrules
    assert local == {name for name, group in groups.items() if group is None}
    components = {entry.split("=")[0] for entry in profile("slurm")["group-components"]}
    assert components == {*groups.values()} - {None}


def test_rules_without_files_are_the_targets() -> None:
    """`all`, `claims` and the studies are the rules that make no files."""
    targets = {rule.name for rule in workflow().rules if not rule.output}
    assert targets == {*STUDIES, "claims", "all"}


def test_every_script_belongs_to_a_rule(jobs: dict[str, Any]) -> None:
    """Each script is run by a rule, but for the command that searches an index."""
    scripts = {of(path) for path in PYTHON if path not in LIBRARY} - {"scripts/job.py"}
    used = {f"scripts/{script(rule)}" for rule in jobs.values()}
    assert scripts - used == {"scripts/embedding/search.py"} and used <= scripts


# --- configuration ------------------------------------------------------------------------------


def test_the_schema_is_generated_from_the_models() -> None:
    """The schema in the repository is the one that the settings classes give."""
    written = (ROOT / configuration.SCHEMA).read_text("utf-8")
    assert written == configuration.schema(), "run python -m scripts.anatomy.configuration"


def test_every_key_is_explained() -> None:
    """Every key of every settings class has a description."""
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
    """Each section of config.yaml, and each key of a section, has a comment above it."""
    text = (ROOT / "config.yaml").read_text("utf-8")
    lines = text.splitlines()
    keys = [index for index, line in enumerate(lines) if re.match(r"(  )?\w+:", line)]
    bare = [lines[index] for index in keys if not lines[index - 1].lstrip().startswith("#")]
    # explained with the key before them; names that the user gives
    exempt = {"compile", "directions", *yaml.safe_load(text)["models"]}
    assert {line.split(":")[0].strip() for line in bare} <= exempt


@pytest.mark.parametrize("name", ["smoke", "paper"])
def test_an_overlay_changes_only_entries_of_the_configuration(name: str) -> None:
    """An overlay's entry is one of config.yaml, or has the keys that a new entry needs."""
    base = yaml.safe_load((ROOT / "config.yaml").read_text("utf-8"))
    overlay = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text("utf-8"))
    unknown = [
        ".".join([*section, name])
        for section in NAMED
        for name, entry in at(overlay, section).items()
        if name not in at(base, section) and not (entry and OWN & entry.keys())
    ]
    assert unknown == []


# An entry that is not in config.yaml has one of these keys
OWN = {"kind", "matrix", "n", "task", "baseline", "a", "data", "lower"}


def at(config: dict[str, Any], section: Sequence[str]) -> dict[str, Any]:
    """Return a section of a configuration, empty if it is missing."""
    return reduce(lambda settings, key: settings.get(key, {}), section, config)


# --- layers -------------------------------------------------------------------------------------


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, also in functions."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


@pytest.mark.parametrize("path", LIBRARY, ids=of)
def test_the_library_imports_neither_snakemake_nor_scripts_nor_another_study(path: Path) -> None:
    """A module imports from the shared library and, in a study's folder, from that study."""
    modules = [module.split(".") for module in imported(path)]
    assert not [module for module in modules if module[0] == "snakemake"]
    local = [module for module in modules if module[0] == "scripts"]
    assert all(module[1] == "anatomy" for module in local)
    folder = path.relative_to(ROOT / "scripts/anatomy").parts[0]
    if folder in {*STUDIES, "models"}:
        assert {module[2] for module in local} & STUDIES <= {folder}


def test_no_module_has_a_vague_name() -> None:
    """No module is called utils or the like."""
    vague = {"utils", "util", "helpers", "misc", "common"}
    assert [of(path) for path in PYTHON if {*path.with_suffix("").parts} & vague] == []


def test_only_scripts_that_use_a_device_import_torch() -> None:
    """Scripts of figures and tables start without torch and transformers."""
    light = [of(path) for path in PYTHON if path not in LIBRARY]
    light = [name for name in light if not USES_A_GPU.search((ROOT / name).read_text("utf-8"))]
    names = [name.removesuffix(".py").replace("/", ".") for name in light]
    program = (
        f"import sys, {', '.join(names)}; print({{'torch', 'transformers'}} & {{*sys.modules}})"
    )
    assert called([sys.executable, "-c", program], ROOT) == "set()\n"
