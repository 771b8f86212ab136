"""Everything that is measured on one trained LEGO model, as one nested record."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from scripts.anatomy.lego import bag, evaluate, experiment, laws, probes, settings, task
from scripts.anatomy.lego.models import LegoTransformer
from scripts.anatomy.lego.task import Batch, Task

SHORTEST = 4  # clauses that make two chains with a step each


def examine(
    model: LegoTransformer,
    variant: settings.Variant,
    rules: Task,
    probing: settings.Probing,
    history: pd.DataFrame,
    baseline: list[float],
    *,
    seed: int,
) -> dict[str, Any]:
    """Accuracies against the bag, the learning order, shortcuts, layer probes and heads.

    `history` are the learning curves, `baseline` what the bag tells of each position.
    """
    test = laws.test_sentences(rules, probing.test, seed)
    curves = history[[f"position{k}" for k in range(rules.n)]].to_numpy()
    positions = experiment.supervised(variant, rules.n)
    found = _accuracies(model, test, baseline, positions) | _order(
        curves, history["step"].to_numpy()
    )
    if rules.n >= SHORTEST:
        found["shortcut"] = _shortcut(model, rules, probing.test, seed)
    found["percolation"] = _percolation(model, rules, probing, seed)
    if min(heads.learned for heads in variant.model.heads) > 0:
        found["heads"] = _heads(model, rules, probing.maps, seed)
    return found


def _accuracies(
    model: LegoTransformer, test: Batch, baseline: list[float], supervised: list[int]
) -> dict[str, Any]:
    """Accuracy by position, and how far it is above what the bag alone tells."""
    held = experiment.tensors(test, device(model))
    predicted = evaluate.predictions(model, held.tokens, held.places)
    accuracy = evaluate.accuracy(predicted, test.values)
    seen = accuracy[supervised]
    unseen = np.delete(accuracy, supervised)
    above = np.delete(accuracy - np.array(baseline), supervised)
    found = {
        "accuracy": accuracy.tolist(),
        "bag": baseline,
        "supervised": supervised,
        "worst_supervised": float(seen.min()),
        "worst": float(accuracy.min()),
        "reach": evaluate.reach(accuracy),
    }
    if len(unseen):
        found["extrapolation"] = {
            "mean": float(unseen.mean()),
            "first": float(unseen[0]),
            "first_above_bag": float(above[0]),
        }
    return found


def _order(curves: Float[np.ndarray, "points positions"], steps: np.ndarray) -> dict[str, Any]:
    """When each position is solved, and whether the leaf is before the middle.

    `learning` is the mean accuracy over the learning curve, roots (which are copied) left out.
    """
    first = evaluate.first_time(curves, steps, threshold=0.95)
    middle = first[1:-1]  # never solved counts as later
    return {
        "learning": float(curves[:, 1:].mean()),
        "solved_at": [float(step) if np.isfinite(step) else None for step in first],
        "middle_after_leaf": int((middle > first[-1]).sum()) if np.isfinite(first[-1]) else 0,
    }


def _shortcut(model: LegoTransformer, rules: Task, count: int, seed: int) -> dict[str, float]:
    """Does the model count where counting is wrong half of the time?

    At the leaf of a chain when another chain is beside it, and at a last clause that was moved to
    an earlier variable.
    """
    first = rules.n // 2
    found = {}
    for name, altered, leaf in (
        ("two_chains", task.two_chains(rules, first), first - 1),
        ("branch", task.branched(rules), rules.n - 1),
    ):
        batch = laws.test_sentences(altered, count, seed, name)
        held = experiment.tensors(batch, device(model))
        predicted = evaluate.predictions(model, held.tokens, held.places)[:, leaf]
        says = bag.counted(rules.group, batch)
        found[f"{name}_agreement"] = bag.agreement(rules.group, predicted, says)
        found[f"{name}_accuracy"] = float((predicted == batch.values[:, leaf]).mean())
    return found


def _percolation(
    model: LegoTransformer, rules: Task, probing: settings.Probing, seed: int
) -> dict[str, Any]:
    """Linear probes of every variable's value after every layer."""
    parts = {}
    for name, count in (("probe training", probing.train), ("probe test", probing.test)):
        sentences = laws.test_sentences(rules, count, seed, name)
        held = experiment.tensors(sentences, device(model))
        parts[name] = (held.tokens, held.places, held.values)
    classes = rules.group.order
    weights = probes.fit_probes(probes.states(model, *parts["probe training"]), classes=classes)
    accuracy = probes.probe_accuracy(weights, probes.states(model, *parts["probe test"]))
    resolved = probes.resolve_layer(accuracy, threshold=0.9)
    spread = resolved[np.isfinite(resolved)]
    return {
        "accuracy": accuracy.tolist(),
        "resolved": [float(layer) if np.isfinite(layer) else None for layer in resolved],
        "linearity": probes.linearity(resolved),
        "order_violations": probes.order_violations(resolved),
        "layers_to_last": float(spread.max() - spread.min()) if len(spread) else 0.0,
    }


def _heads(model: LegoTransformer, rules: Task, count: int, seed: int) -> dict[str, Any]:
    """How associative and how manipulative the learned heads are."""
    batch = laws.test_sentences(rules, count, seed, "maps")
    tokens = experiment.tensors(batch, device(model)).tokens
    letters = torch.from_numpy(rules.layout.ids(rules.layout.letters).astype(np.int64)).to(tokens)
    scores = probes.head_scores(probes.attention_maps(model, tokens), tokens, letters)
    return {
        "association": scores.association_on_variables.tolist(),
        "manipulation": scores.manipulation.tolist(),
        "best_association": float(scores.association_on_variables.max()),
        "best_manipulation": float(scores.manipulation.max()),
    }


def device(model: LegoTransformer) -> torch.device:
    """Where a model is."""
    return model.W_E.device
