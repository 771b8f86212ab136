"""The training loop of every study. A run can be killed at any time and resumed exactly.

What happens at step s depends only on the seed and on s: callers draw batches and masks from
generators seeded by (seed, purpose, s), and the loop seeds torch's global generator (dropout) the
same way. So no random state is stored, and on the CPU a resumed run ends with the same bits as an
uninterrupted one.

    with RunState(folder, fingerprint) as state:
        run = fit(model, loss_at, recipe, state=state, seed=0, checkpoint_steps=[0, 10, 100])
"""

import json
import logging
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from scripts.anatomy import artifacts, seeding

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """How a model is optimised.

    Attributes:
        steps: Optimiser steps.
        learning_rate: Peak learning rate.
        early_steps: Number of first steps with another peak.
        early_rate: Peak learning rate of these, in the same schedule; None for the same.
        optimiser: "adam", or plain "sgd" without momentum.
        schedule: Learning rate after the warm-up: constant, or down to 0 linearly or as a cosine.
        warmup: Steps of linear warm-up.
        clip: Maximum gradient norm; None for no limit.
        weight_decay: Decoupled weight decay (AdamW); the L2 penalty with sgd.
        betas: Adam's decay rates of the running means of the gradient and of its square.
    """

    steps: int
    learning_rate: float
    optimiser: Literal["adam", "sgd"] = "adam"
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = 0
    clip: float | None = None
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    early_steps: int = 0
    early_rate: float | None = None

    def rate(self, step: int) -> float:
        """Return the learning rate of step 0, 1, ..., steps - 1."""
        early = self.early_rate is not None and step < self.early_steps
        peak = self.early_rate if early else self.learning_rate
        if step < self.warmup:
            return peak * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        factor = {
            "constant": 1.0,
            "linear": 1 - done,
            "cosine": (1 + math.cos(math.pi * done)) / 2,
        }
        return peak * factor[self.schedule]

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimiser for these parameters."""
        options = {"lr": self.learning_rate, "weight_decay": self.weight_decay, "fused": True}
        if self.optimiser == "sgd":
            return torch.optim.SGD(parameters, **options)
        return torch.optim.AdamW(parameters, betas=self.betas, **options)


@dataclass(frozen=True)
class Run:
    """The history of a finished training.

    Attributes:
        loss: Training loss of every step, before its update.
        checkpoints: Trained parameters, stacked over the checkpoints that keep them, and the steps
            of these checkpoints under "step".
        evaluations: One record per checkpoint: its step and what `evaluate` returned.
    """

    loss: Float[np.ndarray, "steps"]
    checkpoints: dict[str, np.ndarray]
    evaluations: list[dict[str, float]]


def checkpoint_steps(steps: int, count: int) -> list[int]:
    """Return step 0 and about `count` log-spaced steps up to the last one."""
    spaced = np.geomspace(1, steps, count) if count > 1 else [steps]
    return sorted({0, *np.rint(spaced).astype(int).tolist(), steps})


def even_steps(first: int, last: int, parts: int) -> list[int]:
    """Return the ends of `parts` intervals of about equal length, from `first` to `last`."""
    return np.linspace(first, last, parts + 1).round().astype(int).tolist()


class RunState:
    """The folder that stores a training run, so that the run can be killed and resumed.

    One process at a time owns it: entering waits for the lock, so an orphan of a killed workflow
    manager finishes first. Entering deletes contents with another fingerprint (of the run's params,
    code and data).

    During the run the folder has the state of the optimisation and the checkpoints. After it, the
    folder has the run's artifacts as hard links, which take no space: a workflow manager that
    deletes declared outputs before it reruns a job cannot lose them.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder
        self.fingerprint = fingerprint

    def __enter__(self) -> Self:
        """Raises UnwritableArtifact if the folder, or its lock, cannot be made."""
        waiting = f"another process is training in {self.folder}; waiting for it"
        with ExitStack() as stack:
            stack.enter_context(artifacts.locked(self.folder / "lock", waiting))
            artifacts.remove_leftovers(self.folder)
            file = self.folder / "fingerprint"
            if not file.exists() or file.read_bytes() != self.fingerprint.encode():
                self.clear()
                with artifacts.writing(file) as path:
                    path.write_bytes(self.fingerprint.encode())
            self._lock = stack.pop_all()  # nothing was raised: keep the lock until the run is over
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def clear(self) -> None:
        """Delete everything but the lock."""
        with artifacts.writable(self.folder):
            for entry in self.folder.iterdir():
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def save(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Store the state after `step` steps, replacing the previous one."""
        path = self.folder / "state.safetensors"
        artifacts.write_tensors(path, tensors, {"step": str(step)}, durable=True)

    def load(self, checkpoints: Iterable[int] = ()) -> tuple[dict[str, Tensor], int] | None:
        """Return the stored state and its step, or None if there is no readable one.

        A state without all checkpoints up to its step is not used either: they would be missing
        from the results.
        """
        state = self.folder / "state.safetensors"
        if not state.exists():
            return None
        try:
            tensors = artifacts.read_tensors(state, framework="torch")
            step = int(artifacts.read_metadata(state)["step"])
            for path in (self._checkpoint(past) for past in checkpoints if past <= step):
                artifacts.check_tensors(path)
        except (artifacts.UnreadableArtifact, KeyError) as error:
            logger.warning("the stored state cannot be read; starting afresh (%s)", error)
            return None
        return tensors, step

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"{step:09d}.safetensors"

    def add_checkpoint(
        self, step: int, tensors: Mapping[str, Tensor], evaluation: dict[str, float]
    ) -> None:
        """Store a checkpoint and its evaluation."""
        metadata = {"evaluation": json.dumps(evaluation)}
        artifacts.write_tensors(self._checkpoint(step), tensors, metadata)

    def checkpoints(self) -> tuple[dict[str, np.ndarray], list[dict[str, float]]]:
        """Return the stacked parameters and all evaluations, in the order of their steps."""
        paths = sorted((self.folder / "checkpoints").glob("*.safetensors"))
        evaluations = [
            {"step": int(path.stem)} | json.loads(artifacts.read_metadata(path)["evaluation"])
            for path in paths
        ]
        parts = {int(path.stem): artifacts.read_tensors(path) for path in paths}
        kept = {step: part for step, part in parts.items() if part}
        names = next(iter(kept.values()), {})
        stacked = {name: np.stack([part[name] for part in kept.values()]) for name in names}
        return {"step": np.array([*kept], dtype=np.int64)} | stacked, evaluations

    def keep(self, outputs: Sequence[Path]) -> None:
        """Link the finished run's artifacts, and delete the state of the optimisation."""
        kept = self.folder / "finished"
        partial = self.folder / "finishing"
        with artifacts.writable(kept):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for path in outputs:
                artifacts.link_or_copy(path, partial / path.name)
            digests = {path.name: artifacts.digest(path) for path in outputs}
            artifacts.write_json(partial / "digests.json", digests)
            partial.rename(kept)
        (self.folder / "state.safetensors").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)

    def _intact(self, paths: Iterable[Path]) -> bool:
        """Return whether all kept artifacts exist and are unchanged."""
        digests = self.folder / "finished/digests.json"
        try:
            known = dict(artifacts.read_json(digests))
            return all(artifacts.digest(path) == known.get(path.name) for path in paths)
        except (ValueError, TypeError):  # it is missing, damaged, or no mapping
            return False

    def restore(self, outputs: Iterable[Path]) -> bool:
        """Put a finished run's artifacts back; return False if there is no finished run."""
        pairs = [(self.folder / "finished" / path.name, path) for path in outputs]
        if not self._intact(kept for kept, _ in pairs):
            shutil.rmtree(self.folder / "finished", ignore_errors=True)
            return False
        for kept, path in pairs:
            artifacts.link_or_copy(kept, path)
            with artifacts.writable(path):
                path.touch()  # newer than its inputs, or the job would run again
        return True


def fit(
    model: nn.Module,
    loss_at: Callable[[int], Float[Tensor, ""]],
    recipe: Recipe,
    *,
    state: RunState,
    seed: int,
    checkpoint_steps: Iterable[int],
    keep_parameters: bool | Collection[int] = True,
    evaluate: Callable[[], dict[str, float]] = dict,
    device: str = "cpu",
    autocast: bool = False,
    save_every: float = 60.0,
    label: str = "training",
) -> Run:
    """Train `model` in place and return its history, starting from the stored state if any.

    Args:
        model: The model; parameters that require a gradient are trained.
        loss_at: Returns the loss of a step; its random draws must depend on (seed, step) only.
        recipe: Optimiser, learning rate and number of steps.
        state: The run's folder.
        seed: Seeds torch's global generator at every step, for dropout.
        checkpoint_steps: Numbers of steps after which to evaluate and keep the parameters.
        keep_parameters: False only evaluates at checkpoints, which saves disk for large models; a
            collection of steps keeps the parameters at these checkpoints only.
        evaluate: Measures the model at each checkpoint.
        device: Device of the model.
        autocast: Compute in bfloat16 where that is safe; on CUDA only.
        save_every: Seconds between two stores of the state.
        label: Name of the run in the log.

    Raises:
        SystemExit: With 128 + the signal's number, after SIGTERM or SIGINT; the state is saved.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimiser = recipe.build(trained.values())
    losses = torch.zeros(recipe.steps, device=device)
    checkpoints = set(checkpoint_steps)
    start = _resume(state, trained, optimiser, losses, checkpoints)
    cuda = device.startswith("cuda")

    def save(step: int) -> None:
        state.save(_flatten(trained, optimiser) | {"losses": losses[:step]}, step)

    def checkpoint(step: int) -> None:
        model.eval()
        with torch.inference_mode():
            evaluation = evaluate()
        model.train()
        kept = keep_parameters if isinstance(keep_parameters, bool) else step in keep_parameters
        tensors = {name: p.detach() for name, p in trained.items()} if kept else {}
        state.add_checkpoint(step, tensors, evaluation)

    model.train()
    if start == 0 and 0 in checkpoints:
        checkpoint(0)
    last_save = time.monotonic()
    with _catch_signals() as signals, _Progress(label, start, recipe.steps) as progress:
        for step in range(start, recipe.steps):
            _seed_global_generator(seeding.derive(seed, "step", step), device)
            for group in optimiser.param_groups:
                group["lr"] = recipe.rate(step)
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast and cuda):
                loss = loss_at(step)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            if recipe.clip is not None:
                nn.utils.clip_grad_norm_(trained.values(), recipe.clip)
            optimiser.step()
            losses[step] = loss.detach()
            if step + 1 in checkpoints:
                checkpoint(step + 1)
            if signals or time.monotonic() - last_save > save_every:
                save(step + 1)
                last_save = time.monotonic()
            if signals:
                logger.warning("stopped by signal %d after step %d", signals[0], step + 1)
                raise SystemExit(128 + signals[0])
            progress.update(step + 1, losses)
    if start < recipe.steps:
        save(recipe.steps)  # what follows may be killed as well
    model.eval()
    if not bool(losses.isfinite().all()):
        logger.warning("%s: the loss is not finite from step %d on", label, _first_bad(losses))
    stacked, evaluations = state.checkpoints()
    return Run(losses.cpu().numpy(), stacked, evaluations)


def _seed_global_generator(seed: int, device: str) -> None:
    """Seed one device only: `torch.manual_seed` seeds all, a tenth of a small model's step."""
    torch.default_generator.manual_seed(seed)
    if device.startswith("cuda"):
        torch.cuda.manual_seed(seed)
    elif device == "mps":
        torch.mps.manual_seed(seed)


def _first_bad(losses: Float[Tensor, "steps"]) -> int:
    return int((~losses.isfinite()).nonzero()[0])


def _flatten(
    trained: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Return weights and optimiser state under flat names."""
    flat = {f"model.{name}": parameter.detach() for name, parameter in trained.items()}
    for name, parameter in trained.items():
        for key, value in optimiser.state[parameter].items():
            flat[f"optimiser.{key}.{name}"] = value
    return {name: value for name, value in flat.items() if value is not None}


def _resume(
    state: RunState,
    trained: Mapping[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    losses: Float[Tensor, "steps"],
    checkpoints: Iterable[int],
) -> int:
    """Load the stored state and return the number of steps done."""
    stored = state.load(checkpoints)
    if stored is None:
        return 0
    tensors, step = stored
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(tensors.pop(f"model.{name}"))
        losses[:step] = tensors.pop("losses")
    for name, tensor in tensors.items():
        _, key, parameter = name.split(".", maxsplit=2)
        # Adam keeps its step count on the CPU and the moments on the device of the weights
        device = "cpu" if key == "step" else trained[parameter].device
        optimiser.state[trained[parameter]][key] = tensor.to(device)
    logger.info("going on from step %d", step)
    return step


@contextmanager
def _catch_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in the yielded list, so that the current step can finish."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # handlers can only be set in the main thread
        return
    before = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Progress:
    """A progress bar on a terminal; in a log file, a line every half minute."""

    def __init__(self, label: str, start: int, steps: int, every: float = 30.0) -> None:
        self._label, self._start, self._steps, self._every = label, start, steps, every
        self._bar = tqdm(
            total=steps, initial=start, desc=label, disable=not sys.stderr.isatty(), mininterval=0.5
        )

    def __enter__(self) -> Self:
        self._began = self._reported = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, step: int, losses: Float[Tensor, "steps"]) -> None:
        self._bar.update()
        now = time.monotonic()
        if now - self._reported < self._every and step < self._steps:
            return
        self._reported = now
        speed = (step - self._start) / max(now - self._began, 1e-9)
        left = (self._steps - step) / max(speed, 1e-9)
        logger.info(
            "%s: step %d of %d, loss %.4f, %.1f steps/s, %.0f s left",
            self._label, step, self._steps, losses[step - 1].item(), speed, left,
        )  # fmt: skip
