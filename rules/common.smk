# What all studies share: the checked configuration, fingerprints of code, and helpers for rules.
import os
import sys
from typing import NamedTuple

from scripts.anatomy.artifacts import digest
from scripts.anatomy.configuration import ConfigError, validate
from scripts.anatomy.fingerprint import fingerprints

ROOT = Path(workflow.current_basedir).parent

try:
    SETTINGS = validate(config)
except ConfigError as error:
    sys.exit(str(error))

# Snakemake writes there even in a dry run; on a read-only folder it prints a traceback
HERE = Path(".snakemake" if Path(".snakemake").exists() else ".").resolve()
if not os.access(HERE, os.W_OK):
    sys.exit(
        f"{HERE} is read-only: run in another folder, or name one with --directory"
    )

for name in ("results", "logs"):
    if os.path.lexists(name) and not Path(name).is_dir():
        sys.exit(f"{Path(name).absolute()}: expected a folder, found a file")

CONDA = f"../envs/{SETTINGS.compute.environment}.yaml"


# Code that decides where a job runs and what it logs, but not what it makes
PLUMBING = {
    "scripts.job",
    "scripts.anatomy.devices",
    "scripts.anatomy.gpu_lease",
    "scripts.anatomy.provenance",
}


CODE = fingerprints(
    ROOT, ignore=PLUMBING, cache_file=Path(".snakemake/fingerprints.json")
)


def code(script):
    """Return the digest of the code that a script uses: a param of every rule."""
    return CODE[script]


# With Snakemake's output cache, projects share corpora and LDA fits, which take long to make
SHARED = "omit-software" if os.environ.get("SNAKEMAKE_OUTPUT_CACHE") else None

PAPER_SIZES = SETTINGS.scale == "paper"


def trainings(study):
    """Return the group of a study's trainings, several of which share a submission to a cluster.

    At the papers' sizes a training takes hours and is a submission of its own.
    """
    return None if PAPER_SIZES else f"{study}_trainings"


def memory(mb):
    """Return the memory that a job requests, more at each attempt."""
    return lambda wildcards, attempt: mb * attempt


def runtime(minutes, *, paper):
    """Return the minutes that a job requests, at the papers' sizes or at others."""
    return paper if PAPER_SIZES else minutes


def as_params(settings, **options):
    """Return settings as plain values, as params take them."""
    return settings.model_dump(mode="json", **options)


def any_of(names):
    """Return a wildcard constraint: one of these names; no match if there is none."""
    return "|".join(names) or "(?!)"


def local_file(path):
    """Return a user's file as a list of inputs, empty if there is none."""
    return [local(str(path))] if path else []


# --- paths of results ---------------------------------------------------------------------------


def each_seed(pattern):
    """Return a path for every seed of its study; other wildcards stay."""
    study = getattr(SETTINGS, pattern.split("/")[1])
    return expand(pattern, seed=study.seeds, allow_missing=True)


def seed_of(study):
    """Return the wildcard constraint for one of a study's seeds."""
    return any_of(map(str, study.seeds))


# The folder of a variant's runs; of the topic study, on the first of the variant's corpora
RUNS = {
    "topic": lambda name: f"{SETTINGS.topic.variants[name].corpora[0]}/{name}",
    "lego": lambda name: f"{SETTINGS.lego.variants[name].task}/{name}",
    "pretraining": lambda name: f"{SETTINGS.pretraining.corpus}/{name}",
}


def of_variants(study, variants, artifact):
    """Return an artifact of some variants of a study, every seed."""
    return [
        path
        for name in variants
        for path in each_seed(
            f"results/{study}/{RUNS[study](name)}/seed{{seed}}/{artifact}"
        )
    ]


def named(output):
    """Return the named outputs of a rule, as inputs of the same names."""
    return dict(output.items())


def stored_model(name):
    """Return a stored model as inputs, the folder and the digest of what is in it.

    Snakemake knows a folder by its date alone, so the folder does not count as changed.
    """
    return {
        "model": ancient(f"results/models/{name}/weights"),
        "source": f"results/models/{name}/source.json",
    }


# --- figures and pages --------------------------------------------------------------------------

CATEGORIES = {
    "topic": "Topic study",
    "text": "Real text",
    "embedding": "Embedding study",
    "lego": "LEGO study",
    "pretraining": "Pretraining",
}
DRAWN = {}


class Drawn(NamedTuple):
    """What the rule of a figure or page consists of; figures.smk makes the rule."""

    script: str
    output: dict
    input: dict
    params: dict
    logs: str
    message: str
    memory: int
    constraints: dict


def figure(
    name,
    script,
    subcategory,
    *,
    input,
    params=None,
    label=None,
    rule_name=None,
    tables=None,
    constraints=None,
    memory=1000,
):
    """Add a figure; `name` is its path below results/, without figures/ and ending.

    `label` in the report and the end of `rule_name` are by default the name; `tables` are further
    outputs, `constraints` the values of wildcards in the name, `memory` is in MB.
    """
    study, stem = name.split("/", 1)
    label = label or stem
    path = f"results/{study}/figures/{stem}"
    output = {
        "png": in_report(f"{path}.png", study, script, subcategory, figure=label),
        "svg": f"{path}.svg",
        **(tables or {}),
    }
    DRAWN[f"{study}_plot_{rule_name or stem}"] = Drawn(
        script=f"{study}/plot_{script}.py",
        output=output,
        input=input,
        params={"figure": stem, **(params or {})},  # captions read `figure`
        logs=f"logs/{study}/figures/{stem}",
        message=f"Draw {label}".replace("{", "{wildcards."),
        memory=memory,
        constraints=constraints or {},
    )


def page(study, script, path, label, *, input, params=None, constraints):
    """Add a page to read, at `path` below results/."""
    html = in_report(f"results/{path}", study, script, "Pages to read", figure=label)
    DRAWN[f"{study}_page_{script}"] = Drawn(
        script=f"{study}/page_{script}.py",
        output={"html": html},
        input=input,
        params=params or {},
        logs=f"logs/{Path(path).with_name(f'page_{script}')}",
        message=f"Lay out {label}".replace("{", "{wildcards."),
        memory=1500,
        constraints=constraints,
    )


def in_report(path, study, caption, subcategory, **labels):
    """Return an output with its entry in the report."""
    return report(
        path,
        caption=f"../report/{study}/{caption}.rst",
        category=CATEGORIES[study],
        subcategory=subcategory,
        labels=labels,
    )


def figures_of(study):
    """Return the figures and pages of a study, wildcards expanded."""
    return [
        path
        for drawn in DRAWN.values()
        if drawn.script.startswith(f"{study}/")
        for path in expand(str(next(iter(drawn.output.values()))), **drawn.constraints)
    ]


def script_of(rule):
    """Return the script of a figure's rule, whose name a workflow that uses this one may prefix."""
    (drawn,) = (
        drawn for name, drawn in DRAWN.items() if f"_{rule}".endswith(f"_{name}")
    )
    return f"../scripts/{drawn.script}"
