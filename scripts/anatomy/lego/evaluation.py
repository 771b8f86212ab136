"""Measurements on one trained LEGO model, as one nested record."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int64

from scripts.anatomy.lego import (
    counting_baseline,
    experiment,
    graphs,
    metrics,
    probes,
    settings,
    tasks,
)
from scripts.anatomy.lego.models import LegoModel
from scripts.anatomy.lego.tasks import Batch, Task

MIN_CLAUSES = 4  # for two chains with a step each


def evaluate(
    model: LegoModel,
    variant: settings.LegoVariantSettings,
    task_settings: settings.TaskSettings,
    task: Task,
    probing: settings.ProbingSettings,
    history: pd.DataFrame,
    baseline: list[float],
    *,
    seed: int,
) -> dict[str, Any]:
    """Return accuracies, learning order, shortcuts, layer probes and scores of heads.

    `task` is what `task_settings` describe, in the model's tokens. `history` has the learning
    curves, `baseline` the accuracy of the counting baseline at each position.
    """
    test = experiment.test_sentences(variant, task, probing.test, seed)
    curves = history[[f"position{k}" for k in range(task.n)]].to_numpy()
    positions = experiment.supervised(variant, task.n)
    record = _accuracies(model, test, baseline, positions)
    record |= _order(curves, history["step"].to_numpy())
    record["sentences_to_solve"] = _sentences_to_solve(history, positions, variant.batch)
    if task_settings.held_out:
        unseen = tasks.with_held_out_letters(task, task_settings.held_out)
        record["held_out_letters"] = _held_out(model, unseen, probing.test, seed)
    if variant.tied and probing.iterations:
        record["iterations"] = _iterations(model, test, probing.iterations, variant.model.n_layers)
        if "extrapolation" in record:
            deepest = np.delete(record["iterations"][-1]["accuracy"], positions).mean()
            gain = deepest - record["extrapolation"]["mean"]
            record["extrapolation"]["more_layers"] = float(gain)
    if task.n >= MIN_CLAUSES:
        record["shortcut"] = _shortcut(model, task, probing.test, seed)
    record["percolation"] = _percolation(model, task, probing, seed)
    if variant.has_maps:
        record["heads"] = _heads(model, task, probing.maps, seed)
    return record


def _accuracies(
    model: LegoModel, test: Batch, baseline: list[float], supervised: list[int]
) -> dict[str, Any]:
    """Return accuracy by position and by depth, beside the counting baseline."""
    right = _predicted(model, test) == test.values
    accuracy = right.mean(axis=0)
    seen = accuracy[supervised]
    unseen = np.delete(accuracy, supervised)
    above = np.delete(accuracy - np.array(baseline), supervised)
    depth = graphs.depths(test.parents)
    record = {
        "accuracy": accuracy.tolist(),
        "counting_baseline": baseline,
        "sentences": len(test),
        "chain": bool((depth == np.arange(depth.shape[1])).all()),
        "by_depth": [float(right[depth == steps].mean()) for steps in range(depth.max() + 1)],
        "supervised": supervised,
        "worst_supervised": float(seen.min()),
        "worst": float(accuracy.min()),
        "reach": metrics.reach(accuracy),
    }
    if len(unseen):
        record["extrapolation"] = {
            "mean": float(unseen.mean()),
            "first": float(unseen[0]),
            "first_above_counting_baseline": float(above[0]),
        }
    return record


def _predicted(model: LegoModel, batch: Batch, **options: int) -> Int64[np.ndarray, "sentences n"]:
    inputs = experiment.tensors(batch, device(model))
    return metrics.predictions(model, inputs.tokens, inputs.indices, **options)


def _order(curves: Float[np.ndarray, "points positions"], steps: np.ndarray) -> dict[str, Any]:
    """Return when each position is solved, and whether the leaf is solved before the middle.

    `learning` is the mean accuracy over the learning curve without the root, which is copied.
    """
    first = metrics.first_time(curves, steps, threshold=0.95)
    middle = first[1:-1]  # a position that is never solved counts as later
    return {
        "learning": float(curves[:, 1:].mean()),
        "solved_at": _or_none(first),
        "T99": _or_none(metrics.first_time(curves, steps)),
        "middle_after_leaf": int((middle > first[-1]).sum()) if np.isfinite(first[-1]) else 0,
    }


def _sentences_to_solve(history: pd.DataFrame, supervised: list[int], batch: int) -> int | None:
    """Return the training sentences until all supervised positions are at 0.95; None if never."""
    worst = history[[f"position{k}" for k in supervised]].min(axis=1)
    steps = history["step"] - history["step"].iloc[0]  # mimicking is not counted
    solved = steps[worst >= 0.95]
    return int(solved.iloc[0]) * batch if len(solved) else None


def _or_none(times: Float[np.ndarray, "positions"]) -> list[float | None]:
    return [float(time) if np.isfinite(time) else None for time in times]


def _held_out(model: LegoModel, task: Task, count: int, seed: int) -> dict[str, Any]:
    """Return the accuracy on sentences of letters that no training sentence contains."""
    batch = tasks.seeded_sample(task, count, seed, "held-out letters")
    accuracy = metrics.accuracy(_predicted(model, batch), batch.values)
    return {"accuracy": accuracy.tolist(), "worst": float(accuracy.min())}


def _iterations(
    model: LegoModel, test: Batch, more: list[int], trained: int
) -> list[dict[str, Any]]:
    """Return the accuracy when the layer is applied more or fewer times than in training."""
    records = []
    for layers in sorted({trained, *(trained + extra for extra in more)}):
        if layers > 0:
            accuracy = metrics.accuracy(_predicted(model, test, iterations=layers), test.values)
            records.append({"layers": layers, "accuracy": accuracy.tolist()})
    return records


def _shortcut(model: LegoModel, task: Task, count: int, seed: int) -> dict[str, float]:
    """Return agreement with counting, and accuracy, where counting is wrong half of the time.

    That is at the leaf of a chain beside another chain, and at a last clause that was moved to an
    earlier variable; there `branch_gap` is the accuracy of an inner variable of the same depth
    minus that of the moved one. Agreement is also measured at the leaf of a chain that was cut,
    where no answer is right.
    """
    first, last = task.n // 2 - 1, task.n - 1  # leaves of the first of two chains, of one

    changed = tasks.two_chains(task, first + 1)
    _, right, agreement = _counting(model, changed, first, "two_chains", count, seed)
    accuracy = float(right[:, first].mean())
    record = {"two_chains_agreement": agreement, "two_chains_accuracy": accuracy}

    changed = tasks.branched(task)
    batch, right, agreement = _counting(model, changed, last, "branch", count, seed)
    accuracy = float(right[:, last].mean())
    depth = graphs.depths(batch.parents)[:, last]  # on a path the depth is the position
    inner = right[np.arange(len(right)), depth]
    record |= {"branch_agreement": agreement, "branch_accuracy": accuracy}
    record["branch_gap"] = float(inner.mean() - accuracy)

    if len(task.letters_used) > task.n:
        changed = tasks.severed(task)
        batch, right, agreement = _counting(model, changed, last, "severed", count, seed)
        record["severed_agreement"] = agreement
        known = batch.values[:, :last] >= 0
        record["severed_accuracy_before_cut"] = float(right[:, :last][known].mean())
    return record


def _counting(
    model: LegoModel, task: Task, leaf: int, name: str, count: int, seed: int
) -> tuple[Batch, Bool[np.ndarray, "sentences n"], float]:
    """Return sentences, which predictions are right, and the leaf's agreement with counting."""
    batch = tasks.seeded_sample(task, count, seed, name)
    predicted = _predicted(model, batch)
    counted = counting_baseline.counted(task.group, batch)
    agreement = counting_baseline.agreement(task.group, predicted[:, leaf], counted)
    return batch, predicted == batch.values, agreement


def _percolation(
    model: LegoModel, task: Task, probing: settings.ProbingSettings, seed: int
) -> dict[str, Any]:
    """Return the accuracies of linear probes of every variable after every layer."""
    parts = {}
    for name, count in (("probe training", probing.train), ("probe test", probing.test)):
        batch = experiment.tensors(tasks.seeded_sample(task, count, seed, name), device(model))
        parts[name] = (batch.tokens, batch.indices, batch.values)
    classes = task.group.order
    weights = probes.fit_probes(probes.states(model, *parts["probe training"]), classes=classes)
    accuracy = probes.probe_accuracy(weights, probes.states(model, *parts["probe test"]))
    resolved = probes.resolve_layer(accuracy, threshold=0.9)
    spread = resolved[np.isfinite(resolved)]
    return {
        "accuracy": accuracy.tolist(),
        "resolved": _or_none(resolved),
        "linearity": probes.linearity(resolved),
        "order_violations": probes.order_violations(resolved),
        "layers_to_last": float(spread.max() - spread.min()) if len(spread) else 0.0,
    }


def _heads(model: LegoModel, task: Task, count: int, seed: int) -> dict[str, Any]:
    """Return the association and manipulation scores of the learned heads."""
    batch = tasks.seeded_sample(task, count, seed, "maps")
    tokens = experiment.tensors(batch, device(model)).tokens
    letters = torch.from_numpy(task.layout.ids(task.layout.letters).astype(np.int64)).to(tokens)
    scores = probes.head_scores(probes.attention_maps(model, tokens), tokens, letters)
    return {
        "association": scores.association_on_variables.tolist(),
        "manipulation": scores.manipulation.tolist(),
        "best_association": float(scores.association_on_variables.max()),
        "best_manipulation": float(scores.manipulation.max()),
    }


def device(model: LegoModel) -> torch.device:
    """Return the device of a model."""
    return next(model.parameters()).device
