# What every study needs: the checked configuration and the fingerprints of code.
import os
import subprocess
import sys

from snakemake.exceptions import WorkflowError

from scripts.anatomy.artifacts import digest
from scripts.anatomy.configuration import ConfigError, validate
from scripts.anatomy.fingerprint import fingerprints
from scripts.anatomy.models.store import TOKENIZER, WANTED

ROOT = Path(workflow.current_basedir).parent

try:
    SETTINGS = validate(config)
except ConfigError as error:
    sys.exit(str(error))

# Snakemake keeps its notes there, even in a dry run, and would end in a traceback
HERE = Path(".snakemake" if Path(".snakemake").exists() else ".").resolve()
if not os.access(HERE, os.W_OK):
    sys.exit(
        f"{HERE} is read-only: run in another folder, or name one with --directory"
    )

for name in ("results", "logs"):
    if os.path.lexists(name) and not Path(name).is_dir():
        sys.exit(f"{Path(name).absolute()} is no folder")

CONDA = f"../envs/{SETTINGS.compute.environment}.yaml"


# Code that decides where a job runs and what it logs, and not what it makes
PLUMBING = {
    "scripts.job",
    "scripts.anatomy.devices",
    "scripts.anatomy.gpu_lease",
    "scripts.anatomy.provenance",
}


CODE = fingerprints(
    ROOT, ignore=PLUMBING, remembered=Path(".snakemake/fingerprints.json")
)


def code(script):
    """Digest of the code that a script uses: a param of every rule, so that it reruns with it."""
    return CODE[script]


# Projects share what takes long to read where this variable names a folder for it
SHARED = "omit-software" if os.environ.get("SNAKEMAKE_OUTPUT_CACHE") else None

PAPER_SIZES = SETTINGS.scale == "paper"


def trainings(study):
    """The group of a study's trainings, several of which share a submission to a cluster.

    At the papers' sizes a training takes hours, and is a submission of its own.
    """
    return None if PAPER_SIZES else f"{study}_trainings"


def memory(mb):
    """Memory that a job asks for; one that ran out of it asks for more at the next attempt."""
    return lambda wildcards, attempt: mb * attempt


def minutes(here, *, paper):
    """Time that a job asks for, at the papers' sizes and at others."""
    return paper if PAPER_SIZES else here


# The variables in which SLURM says what it granted; `_nodes` would keep jobs one after the other.
GRANTED = {"_cores": "SLURM_CPUS_PER_TASK", "gpu": "SLURM_GPUS"}


def run_here(workflow):
    """Let the Snakemake inside a submission run its jobs itself, within what SLURM granted.

    Left alone it would start another Snakemake for each of them, one after the other.
    """
    for each in workflow.rules:
        each.group = None
        workflow.localrules(each.name)
    workflow.register_resource("_nodes", None)
    for resource, variable in GRANTED.items():
        if os.environ.get(variable, "").isdigit():
            workflow.register_resource(resource, int(os.environ[variable]))


def check_slurm():
    """End the run where SLURM does not answer; its plugin would wait for it for ever."""
    try:
        subprocess.run(["sinfo"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        raise WorkflowError(
            "SLURM does not answer here (`sinfo`): start on a login node of the cluster"
        )


def count_submissions(dag):
    """What goes to the cluster, as a line to print."""
    jobs = [job for job in dag.needrun_jobs() if not job.is_local]
    submissions = {dag.get_job_group(job) or job for job in jobs}
    return f"To the cluster: {len(jobs)} jobs in {len(submissions)} submissions"


def plain(settings, **options):
    """Settings as plain values, as params want them."""
    return settings.model_dump(mode="json", **options)


def one_of(names):
    """A wildcard constraint: one of these names and nothing else; of no names, nothing at all."""
    return "|".join(names) or "(?!)"


def model_files(wildcards):
    """The files that are taken from a local folder; none when a package or the hub has them."""
    folder = getattr(SETTINGS.models[wildcards.model], "path", None)
    patterns = [*WANTED, *TOKENIZER] if folder else []
    return [
        local(str(file))
        for pattern in patterns
        for file in sorted(folder.glob(pattern))
    ]


def pretrained_here(artifact):
    """What gives an artifact of the training that a model is from."""
    return lambda wildcards: "results/pretraining/{corpus}/{m.variant}/seed{m.seed}/{artifact}".format(
        corpus=SETTINGS.pretraining.corpus,
        m=SETTINGS.models[wildcards.model],
        artifact=artifact,
    )
