"""Run a script as a job, of the workflow or standalone.

The last line of every script is

    job.run(main, globals())

Snakemake puts a `snakemake` object into a script's globals. Then stdout, stderr, logging and
uncaught exceptions go to the rule's log, line by line. Without that object the script was started
standalone, for an artifact that one of its rules makes:

    python -m scripts.topic.train results/topic/lda/v2/seed0/run.json [--configfile FILE ...]

Then the job's inputs, params and threads are looked up in the workflow, output stays on the
terminal, and you can step through with a debugger.
"""

import argparse
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scripts.anatomy import artifacts, gpu_lease, provenance
from scripts.anatomy.artifacts import UnreadableArtifact, UnwritableArtifact
from scripts.anatomy.config_loading import ConfigError, printable, read
from scripts.anatomy.devices import Compute, ComputeSettings

if TYPE_CHECKING:
    from scripts.anatomy.training import RunState  # importing torch takes seconds

ROOT = Path(__file__).resolve().parent.parent
Main = Callable[[Any], None]


def run(main: Main, script: dict[str, Any]) -> None:
    """Run `main(snakemake)` for Snakemake's job, or for the artifact on the command line."""
    if script["__name__"] != "__main__":
        return  # imported, by a test for instance
    job = script.get("snakemake")
    terminal = 2
    if job is None:
        job = _from_command_line(Path(script["__file__"]).resolve())
    elif job.log:
        terminal = _redirect(Path(job.log[0]))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", force=True
    )
    _check_code(Path(getattr(job, "scriptdir", ROOT / "scripts/study")))
    _check_allocation(job)
    _fix_future_mtimes(job.input)
    try:
        with _output_lock(job.output[0]):
            _check_models(job.input)
            main(job)
    except gpu_lease.DeviceMissing as error:
        sys.exit(f"compute.device: {error}")
    except (UnwritableArtifact, gpu_lease.LocksUnusable) as error:
        _report(str(error), terminal)
        # suppress the long "Exception ignored" traceback of a file that can no longer be flushed
        sys.unraisablehook = lambda _: None
        sys.exit(1)
    except UnreadableArtifact as error:
        with _workflow(job.config) as workflow:
            maker = _producer(str(error.path), workflow)
        made_by = f"it is made by rule {maker.name}" if maker else "no rule makes it"
        advice = (
            "Delete the file and run again." if error.path.exists() else "Run the workflow for it."
        )
        sys.exit(f"{error}; {made_by}. {advice}")


def _redirect(log: Path) -> int:
    """Send file descriptors 1 and 2 to the log, including the output of compiled code.

    Returns a descriptor of the previous stderr.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("w", encoding="utf-8")
    except OSError as error:
        sys.exit(f"{log}: the log cannot be written: {error.strerror}")
    terminal = os.dup(2)
    with file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout.reconfigure(line_buffering=True)
    sys.stderr.reconfigure(line_buffering=True)
    return terminal


def _report(line: str, terminal: int) -> None:
    """Write a line to the log, or to the terminal if the log is on the full disk too."""
    text = f"{line}\n".encode()
    try:
        written = os.write(2, text)
    except OSError:
        written = 0
    if written < len(text):
        os.write(terminal, text)


def _check_code(folder: Path) -> None:
    """Exit if PYTHONPATH makes the script import another checkout's library.

    Its results would be stored under the digest of this checkout's code.
    """
    expected = folder.resolve().parent.parent
    if expected != ROOT:
        sys.exit(f"PYTHONPATH: expected scripts of {expected}, got those of {ROOT}")


def _check_allocation(job: Any) -> None:
    """Exit unless the job's threads and GPUs are valid: Snakemake accepts any value."""
    gpus = getattr(job.resources, "gpu", 0)
    if job.threads < 1:
        sys.exit(f"threads of rule {job.rule}: expected 1 or more, got {job.threads}")
    if not isinstance(gpus, int) or gpus < 0:
        sys.exit(f"gpu of rule {job.rule}: expected a number of GPUs, got {gpus!r}")


def _output_lock(output: str) -> AbstractContextManager[None]:
    """Wait for another process that makes the same output.

    A job may outlive a killed Snakemake and would overwrite what the next one makes.
    """
    name = blake2b(str(output).encode(), digest_size=16).hexdigest()
    waiting = f"another process makes {output}; waiting for it"
    return artifacts.locked(Path(".snakemake/jobs", f"{name}.lock"), waiting)


def _fix_future_mtimes(inputs: Iterable[str]) -> None:
    """Set the date of inputs from the future to now, and log it.

    Snakemake fails a job whose outputs are older than its inputs, as after copying results or texts
    from a machine whose clock is ahead. If the date cannot be set, Snakemake's own error follows.
    """
    now = time.time()
    for path in (Path(path) for path in inputs):
        # Snakemake keeps the date of a folder in a hidden file
        for dated in (path, path / ".snakemake_timestamp"):
            with suppress(OSError):
                if dated.stat().st_mtime > now:
                    os.utime(dated)
                    logging.warning("%s has a date in the future; it is set to now", dated)


def _check_models(inputs: Iterable[str]) -> None:
    """Raise UnreadableArtifact if a model does not match the digest in its source.json."""
    for folder in {Path(path) for path in inputs if Path(path).is_dir()}:
        source = folder.with_name("source.json")
        if source.is_file():
            stored = artifacts.read_json(source).get("digest")
            # Snakemake adds a hidden file to a folder that a rule makes
            files = sorted(path for path in folder.iterdir() if path.name[0] != ".")
            if artifacts.digest(files) != stored:
                reason = f"is damaged: its files do not match the digest in {source}"
                raise UnreadableArtifact(folder, reason)


def _from_command_line(script: Path) -> Any:
    """Return the job of the artifact that the command line names."""
    parser = argparse.ArgumentParser(description="Make one artifact without Snakemake.")
    parser.add_argument("artifact", help="path of the artifact, as the workflow names it")
    parser.add_argument("--configfile", nargs="+", default=[], help="overlays on config.yaml")
    parser.add_argument("--directory", default=".", help="where results/ is, if not here")
    parser.add_argument("--threads", type=int, help="threads to use, if not the rule's")
    arguments = parser.parse_args()
    for file in arguments.configfile:
        try:
            read(Path(file))  # Snakemake would print a traceback
        except ConfigError as error:
            sys.exit(str(error))
    overlays = [os.path.abspath(file) for file in arguments.configfile]
    os.chdir(arguments.directory)
    arguments.artifact = os.path.relpath(arguments.artifact)
    with _workflow({}, overlays) as workflow:
        rule = _producer(arguments.artifact, workflow)
        if rule is None:
            sys.exit(f"no rule makes {arguments.artifact}")
        maker = Path("scripts", *Path(rule.script).parts[-2:])
        if maker.parts[-2:] != script.parts[-2:]:
            sys.exit(f"{arguments.artifact} is made by {maker}, not by {script.name}")
        return _job(arguments.artifact, rule, workflow, arguments.threads)


@contextmanager
def _workflow(config: dict, configfiles: Sequence[str] = ()) -> Iterator[Any]:
    """Yield the workflow with its rules loaded, `config` and `configfiles` over config.yaml."""
    # imported here, because a job of the workflow does not need them
    from snakemake.api import SnakemakeApi
    from snakemake.settings.enums import Quietness
    from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings

    output = OutputSettings(quiet={Quietness.ALL}, enable_file_logging=False)
    with SnakemakeApi(output) as api:
        loaded = api.workflow(
            resource_settings=ResourceSettings(cores=os.cpu_count()),
            config_settings=ConfigSettings(
                configfiles=[Path(file) for file in configfiles], config=config
            ),
            snakefile=ROOT / "Snakefile",
        )
        yield loaded._workflow  # the public API cannot look a rule up by its output


def _producer(artifact: str, workflow: Any) -> Any:
    """Return the rule that makes an artifact, or None."""
    return next((rule for rule in workflow.rules if rule.is_producer(artifact)), None)


def _job(artifact: str, rule: Any, workflow: Any, threads: int | None) -> SimpleNamespace:
    """Return what Snakemake would pass to the script for this artifact."""
    from snakemake.iocontainers import Wildcards

    wildcards = rule.get_wildcards(artifact)
    named = Wildcards(fromdict=wildcards)
    inputs = rule.expand_input(wildcards)[0]
    outputs = rule.expand_output(wildcards)[0]
    resources = rule.expand_resources(wildcards, inputs, attempt=1)
    return SimpleNamespace(
        input=inputs,
        output=outputs,
        params=rule.expand_params(wildcards, inputs, outputs, None)[0],
        wildcards=named,
        threads=threads or resources["_cores"],
        resources=SimpleNamespace(gpu=resources.get("gpu", 0)),
        config=workflow.config,
        log=[],
        rule=rule.name,
    )


@contextmanager
def compute(snakemake: Any) -> Iterator[Compute]:
    """Yield where the job computes: a leased GPU if one is allocated and present, else the CPU."""
    settings = ComputeSettings.model_validate(snakemake.config.get("compute", {}))
    with gpu_lease.lease(
        settings.device,
        gpus_allocated=getattr(snakemake.resources, "gpu", 0),
        jobs_per_device=settings.gpu_jobs_per_device,
    ) as device:
        logging.info("computing on %s", device)
        yield Compute(
            device=device,
            autocast=settings.autocast,
            compile=settings.compile,
            save_every=settings.save_every,
        )


@contextmanager
def config_errors(key: str) -> Iterator[None]:
    """Exit with one line that names the key if the block finds an error in the configuration."""
    try:
        yield
    except UnreadableArtifact:
        raise  # `run` names the rule that makes the file
    except ValueError as error:
        sys.exit(printable(f"{key}: {error}"))  # the message may quote a foreign file


# --- trainings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """One training of a job.

    Attributes:
        seed: Its seed.
        input: Its input files by name; those that the job has for each seed, for this one.
        output: Its output files by name.
        state: The folder in which it survives a kill.
        compute: Where it computes.
        label: Its name in the log.
    """

    seed: int
    input: dict[str, Any]
    output: dict[str, Path]
    state: "RunState"
    compute: Compute
    label: str
    started: float

    def write_record(self, params: Mapping[str, Any], metrics: Mapping[str, Any], **of_run) -> None:
        """Write run.json: what was trained, how it ended, and on what it ran."""
        record = provenance.record(seed=self.seed, device=self.compute.device, started=self.started)
        artifacts.write_json(
            self.output["run"],
            {"params": params, "metrics": metrics, "provenance": record | of_run},
        )


def trainings(snakemake: Any) -> Iterator[Training]:
    """Yield the trainings of a job that have not finished before, and keep what they write.

    A job trains one seed, its wildcard, or all of `params.seeds`; its named inputs and outputs
    then have a file for each. A training is the same as an earlier one, whose outputs are restored
    or whose state is continued, if all params, the contents of all inputs and all wildcards are
    the same; other seeds of the job do not count. A folder among the inputs does not count either:
    the rule has its digest beside it.
    """
    import torch

    from scripts.anatomy.training import RunState

    torch.set_num_threads(snakemake.threads)
    params = dict(snakemake.params.items())
    several = params.pop("seeds", None)
    seeds = several or [int(snakemake.wildcards.seed)]
    with compute(snakemake) as device:
        for index, seed in enumerate(seeds):
            inputs, outputs = (
                {name: files[index] if several else files for name, files in named.items()}
                for named in (snakemake.input, snakemake.output)
            )
            outputs = {name: Path(file) for name, file in outputs.items()}
            folder = outputs["run"].parent
            started = time.perf_counter()
            digest = _digest(params, snakemake.wildcards, inputs.values(), seed)
            with RunState(folder / ".state", digest) as state:
                if state.restore([*outputs.values()]):
                    continue
                label = "/".join(folder.parts[-2:])
                yield Training(seed, inputs, outputs, state, device, label, started)
                state.keep([*outputs.values()])


@contextmanager
def parts(snakemake: Any) -> Iterator[Callable[[str], "RunState"]]:
    """Give the trainings inside a job that writes a table of many: a state for each name.

    The states are for a job that is killed, and go when it ends well.
    """
    import torch

    from scripts.anatomy.training import RunState

    torch.set_num_threads(snakemake.threads)
    digest = _digest(dict(snakemake.params.items()), snakemake.wildcards, snakemake.input)
    states = Path(snakemake.output[0]).parent / ".state"
    yield lambda name: RunState(states / name, digest)
    shutil.rmtree(states)


def _digest(
    params: Mapping[str, Any],
    wildcards: Any,
    inputs: Iterable[str | Sequence[str]],
    seed: int | None = None,
) -> str:
    """Return a digest of what decides a training; UnreadableArtifact for a damaged input."""
    files = [
        Path(file)
        for one in inputs
        for file in ([one] if isinstance(one, str) else one)
        if not Path(file).is_dir()
    ]
    for file in files:  # before a state that belongs to the undamaged input is dropped
        if file.suffix == ".safetensors":
            artifacts.check_tensors(file)
        elif file.suffix == ".parquet":
            artifacts.read_parquet(file)
    names = {name: value for name, value in wildcards.items() if name != "seed"}
    return artifacts.checksum(
        [dict(params), names, [artifacts.digest(file) for file in files], seed]
    )
