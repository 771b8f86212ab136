# What every study needs: the checked configuration and the fingerprints of code.
import sys

from scripts.anatomy.artifacts import digest
from scripts.anatomy.configuration import ConfigError, validate
from scripts.anatomy.fingerprint import fingerprint
from scripts.anatomy.pretrained.store import TOKENIZER, WANTED

ROOT = Path(workflow.current_basedir).parent

try:
    SETTINGS = validate(config)
except ConfigError as error:
    sys.exit(str(error))
CONDA = f"../envs/{SETTINGS.compute.environment}.yaml"


# Code that decides where a job runs and what it logs, and not what it makes
PLUMBING = {
    "scripts.job",
    "scripts.anatomy.compute",
    "scripts.anatomy.devices",
    "scripts.anatomy.provenance",
}


def code(script):
    """Digest of the code that a script uses: a param of every rule, so that it reruns with it."""
    return fingerprint(ROOT / "scripts" / script, root=ROOT, ignore=PLUMBING)


def plain(settings, **options):
    """Settings as plain values, as params want them."""
    return settings.model_dump(mode="json", **options)


def one_of(names):
    """A wildcard constraint: one of these names and nothing else."""
    return "|".join(names) or "NONE"


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
