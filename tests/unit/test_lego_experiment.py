"""LEGO runs: laws from the configuration, supervision, training that repeats, measurements."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from scripts.anatomy.lego import evaluate, examine, experiment, laws, settings
from scripts.anatomy.training import RunState

SMALL = {
    "layers": 2, "d_model": 16, "d_ff": 16, "norm": "pre", "init": None,
    "heads": [{"learned": 2, "association": 1, "convolution": 1}],
}  # fmt: skip
TASK = settings.Task(n=4, letters=6)


def variant(**choices: object) -> settings.Variant:
    return settings.Variant.model_validate(
        {"task": "chain", "model": SMALL, "steps": 4, "batch": 8, "evaluations": 2} | choices
    )


@pytest.mark.parametrize(
    ("choice", "n"),
    [
        ({"kind": "path"}, 4),
        ({"kind": "paths", "count": 2}, 4),
        ({"kind": "varied", "shortest": 2}, 4),
        ({"kind": "branch"}, 4),
        ({"kind": "star"}, 5),
        ({"kind": "balanced"}, 6),
        ({"kind": "recursive"}, 5),
    ],
)
@pytest.mark.parametrize("group", ["z2", "d3", "s3", "klein", "z5"])
def test_every_task_of_the_configuration_can_be_sampled(choice: dict, n: int, group: str) -> None:
    """A task that the schema allows would stop a run midway."""
    rules = laws.law(settings.Task(n=n, letters=8, group=group, graph=choice))
    batch = laws.test_sentences(rules, 20, seed=0)
    assert batch.tokens.shape == (20, rules.layout.length(n))
    assert 0 <= batch.values.min() and batch.values.max() < rules.group.order


def test_a_table_that_is_no_group_is_told_with_its_elements() -> None:
    """A user would train on something that has no inverse, or get a traceback."""
    table = {"names": ["e", "a"], "table": [[0, 1], [1, 1]]}
    with pytest.raises(ValueError, match="inverse|associat"):
        laws.law(settings.Task(n=3, group=table))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"mimicking": {}, "model": SMALL | {"heads": [{"learned": 1, "association": 3}]}}, "2"),
        ({"leaf_only": True, "n_tr": 2}, "leaf_only"),
        ({"model": SMALL | {"window": 4}}, "even"),
        ({"model": SMALL | {"d_model": 18}}, "multiple"),
    ],
)
def test_contradictions_are_told_before_any_job(choices: dict, message: str) -> None:
    """A training would fail after the queue, or quietly do something else."""
    with pytest.raises(ValidationError, match=message):
        variant(**choices)


def test_what_is_supervised() -> None:
    """A curve of unseen positions would be of positions that had a loss."""
    assert experiment.supervised(variant(), 4) == [0, 1, 2, 3]
    assert experiment.supervised(variant(n_tr=2), 4) == [0, 1]
    assert experiment.supervised(variant(leaf_only=True), 4) == [3]
    growing = variant(curriculum=10, n_tr=3)
    assert [len(experiment.supervised(growing, 4, step)) for step in (0, 9, 10, 25, 99)] == [
        1, 1, 2, 3, 3
    ]  # fmt: skip


def trained(folder: Path, **choices: object) -> tuple[dict[str, torch.Tensor], pd.DataFrame]:
    rules = laws.law(TASK)
    with RunState(folder, "x") as state:
        model, run = experiment.train(
            variant(**choices), rules, seed=1, state=state,
            test=laws.test_sentences(rules, 30, 1),
        )  # fmt: skip
    return model.state_dict(), pd.DataFrame(run.evaluations)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"sentences": 40},
        {"deep": True},
        {"mimicking": {"steps": 3, "batch": 4, "keep": 0.1}},
        {"mimicking": {"steps": 3, "batch": 4, "shuffled": True}},
    ],
    ids=str,
)
def test_same_seed_same_bits_and_curves_of_the_task_alone(choices: dict, tmp_path: Path) -> None:
    """A rerun would change results, or a curve would begin during mimicking."""
    first, curves = trained(tmp_path / "a", **choices)
    again, _ = trained(tmp_path / "b", **choices)
    assert all(torch.equal(first[name], again[name]) for name in first)
    start = 3 if "mimicking" in choices else 0
    assert curves["step"].tolist() == [start, start + 2, start + 4]
    assert [c for c in curves if c.startswith("position")] == [f"position{k}" for k in range(4)]


def test_unsupervised_positions_get_no_gradient() -> None:
    """Extrapolation would be of positions that were trained after all."""
    rules = laws.law(TASK)
    model = experiment.build(variant(), rules, 0)
    batch = experiment.tensors(laws.test_sentences(rules, 8, 0))
    changed = experiment.Tensors(batch.tokens, batch.values.clone(), batch.places)
    changed.values[:, 2:] = 1 - changed.values[:, 2:]
    losses = [
        experiment._task_loss(model, b, variant(n_tr=2), 4, 0).item() for b in (batch, changed)
    ]
    assert losses[0] == losses[1]


def test_measurements_of_a_model_that_knows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the ledger would be of other positions than their names say."""
    rules = laws.law(TASK)
    held = laws.test_sentences(rules, 50, 0)
    wrong_at_2 = held.values.copy()
    wrong_at_2[:, 2] = 1 - wrong_at_2[:, 2]
    monkeypatch.setattr(evaluate, "predictions", lambda *_: wrong_at_2)
    model = experiment.build(variant(), rules, 0)
    found = examine._accuracies(model, held, [1.0, 0.6, 0.6, 1.0], [0, 1])
    assert found["worst_supervised"] == 1 and found["worst"] == 0 and found["reach"] == 1
    assert found["extrapolation"]["mean"] == 0.5
    assert found["extrapolation"]["first_above_bag"] == pytest.approx(-0.6)
    order = examine._order(
        np.array([[1, 0.5, 0.5, 0.5], [1, 0.6, 0.5, 1], [1, 1, 0.7, 1]]), np.array([0, 10, 20])
    )
    assert order["solved_at"] == [0, 20, None, 10]
    assert order["middle_after_leaf"] == 2


def test_everything_can_be_measured_on_a_trained_model() -> None:
    """A measurement would fail for some kinds of heads, tasks or groups."""
    probing = settings.Probing(test=40, train=60, maps=10)
    for task, choices in (
        (TASK, {}),
        (settings.Task(n=4, letters=6, group="d3"), {"one_logit": False}),
        (settings.Task(n=4, letters=6, graph={"kind": "paths"}), {"n_tr": 2}),
    ):
        rules = laws.law(task)
        model = experiment.build(variant(**choices), rules, 0).eval()
        history = pd.DataFrame({"step": [0, 4]} | {f"position{k}": [0.5, 0.6] for k in range(4)})
        with torch.inference_mode():
            found = examine.examine(
                model, variant(**choices), rules, probing, history, [0.5] * 4, seed=0
            )
        assert len(found["percolation"]["accuracy"]) == 3  # embeddings and two layers
        assert 0 <= found["shortcut"]["two_chains_agreement"] <= 1
        assert ("extrapolation" in found) == ("n_tr" in choices)
        assert np.shape(found["heads"]["association"]) == (2, 2)
