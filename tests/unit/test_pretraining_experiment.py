"""Pretraining runs: the same data for all variants, exact to resume, measured at masked places."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional
from transformers import BertForMaskedLM

from scripts.anatomy import timing
from scripts.anatomy.lego_attention_bert import from_pretrained
from scripts.anatomy.pretraining import cost, data, experiment
from scripts.anatomy.pretraining.data import Text
from scripts.anatomy.pretraining.masking import Masked
from scripts.anatomy.pretraining.settings import (
    EvaluationSettings,
    OptimisationSettings,
    PretrainingMaskingSettings,
    PretrainingSettings,
    PretrainingVariantSettings,
    SizeSettings,
)
from scripts.anatomy.pretraining.tokenizer import Special
from scripts.anatomy.settings import Heads
from scripts.anatomy.training import RunState
from scripts.pretraining import train as train_script

SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
SIZE = SizeSettings(n_layers=1, d_model=16, d_ff=16, n_heads=4, dropout=0.1, init=0.1)
VARIANTS = {
    "base": PretrainingVariantSettings(heads=Heads(learned=4)),
    "v0": PretrainingVariantSettings(heads=Heads.parse("2/2/0"), window=3),
    "v1": PretrainingVariantSettings(heads=Heads.parse("1/1/2"), window=3),
}
OPTIMISATION = OptimisationSettings(steps=6, batch=4)
EVALUATION = EvaluationSettings(rows=8, eval_points=2, checkpoints=2)


def text() -> Text:
    rows = np.random.default_rng(0).integers(5, 30, (30, 12)).astype(np.uint16)
    rows[:, 0], rows[:, -1] = SPECIAL.cls, SPECIAL.sep
    return Text(rows[:20], rows[20:], 32, 30, SPECIAL, PretrainingMaskingSettings())


def trained(
    folder: Path, variant: str = "v1", *, seed: int = 0, steps: int = 6
) -> experiment.TrainedBert:
    with RunState(folder, "x") as state:
        return experiment.train(
            VARIANTS[variant], SIZE, text(), OPTIMISATION, EVALUATION,
            learning_rate=0.01, steps=steps, seed=seed, state=state,
        )  # fmt: skip


# --- runs ---------------------------------------------------------------------------------------


def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run has the bits of an uninterrupted one."""
    whole = trained(tmp_path / "whole")
    steps = itertools.count()
    real = experiment.loss

    def dies(model: BertForMaskedLM, masked: Masked) -> torch.Tensor:
        if next(steps) == 4:
            raise KeyboardInterrupt
        return real(model, masked)

    monkeypatch.setattr(experiment, "loss", dies)
    with pytest.raises(KeyboardInterrupt), RunState(tmp_path / "part", "x") as state:
        experiment.train(
            VARIANTS["v1"], SIZE, text(), OPTIMISATION, EVALUATION, learning_rate=0.01, steps=6,
            seed=0, state=state, compute=experiment.Compute(save_every=0),
        )  # fmt: skip
    resumed = trained(tmp_path / "part")
    assert next(steps) == 4 + 1 + 2  # four steps, the one that died, two more
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert whole.run.evaluations == resumed.run.evaluations


def test_all_variants_read_the_same_rows_with_the_same_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variants of one seed read the same rows and masks."""
    real, read = experiment.loss, []

    def noting(model: BertForMaskedLM, masked: Masked) -> torch.Tensor:
        read[-1].append(masked.observed.copy())
        return real(model, masked)

    monkeypatch.setattr(experiment, "loss", noting)
    for variant in VARIANTS:
        read.append([])
        trained(tmp_path / variant, variant)
    read.append([])
    trained(tmp_path / "other", "v1", seed=1)
    first, second, third, other = (np.stack(steps) for steps in read)
    assert (first == second).all() and (first == third).all()
    assert (first != other).any()


def test_curves_begin_untrained_and_some_weights_are_kept(tmp_path: Path) -> None:
    """Curves start at step 0, and checkpoints are at log-spaced steps."""
    found = trained(tmp_path)
    assert [one["step"] for one in found.run.evaluations] == [0, 1, 3, 6]
    assert found.run.checkpoints["step"].tolist() == [0, 1, 6]
    name = "bert.embeddings.word_embeddings.weight"
    kept = found.run.checkpoints[name]
    assert kept.shape == (3, 32, 16)
    assert np.array_equal(kept[-1], found.model.state_dict()[name].numpy())
    fresh = experiment.build(VARIANTS["v1"], SIZE, text(), seed=0)
    assert np.array_equal(kept[0], fresh.state_dict()[name].numpy())


def test_a_summary_is_of_the_last_point(tmp_path: Path) -> None:
    """The summary has the last evaluation, minus the baselines."""
    found = trained(tmp_path)
    summary = experiment.summary(found, {"unigram": 5.0})
    assert summary["loss"] == found.run.evaluations[-1]["loss"]
    assert summary["below_unigram"] == pytest.approx(5 - summary["loss"])
    assert summary["parameters"] == sum(p.numel() for p in found.model.parameters())


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    """Training lowers the loss."""
    with RunState(tmp_path, "x") as state:
        found = experiment.train(
            VARIANTS["v1"], SIZE, text(), OPTIMISATION, EVALUATION,
            learning_rate=0.01, steps=60, seed=0, state=state,
        )  # fmt: skip
    assert found.run.loss[-10:].mean() < found.run.loss[:3].mean() - 0.1


def test_a_trained_model_is_saved_and_loaded(tmp_path: Path) -> None:
    """A saved model loads with the same loss."""
    found = trained(tmp_path / "run").model.eval()
    found.save_pretrained(tmp_path / "model")
    again = from_pretrained(tmp_path / "model", BertForMaskedLM)
    held = data.validation_batches(text(), 8)
    with torch.inference_mode():
        assert experiment.measure(again, held) == experiment.measure(found, held)


# --- loss and measurement -----------------------------------------------------------------------


def test_loss_equals_the_library() -> None:
    """The loss equals the library's at the masked positions."""
    some = text()
    model = experiment.build(VARIANTS["v1"], SIZE, some, seed=0).eval()
    masked = some.masked(some.train[:6], 0, "masks")
    labels = torch.full((6 * 12,), -100)
    labels[masked.index] = torch.from_numpy(masked.target)
    whole = model(torch.from_numpy(masked.observed), labels=labels.view(6, 12))
    torch.testing.assert_close(experiment.loss(model, masked), whole.loss)


def test_measure() -> None:
    """Losses of repeated and new targets, and accuracy, of known logits."""
    some = text()
    model = experiment.build(VARIANTS["base"], SIZE, some, seed=0).eval()
    held = [some.masked(some.validation[:7], 0, "a"), some.masked(some.validation[7:8], 0, "b")]
    with torch.inference_mode():
        found = experiment.measure(model, held)
        logits, target, repeated = [], [], []
        for part in held:
            all_logits = model(torch.from_numpy(part.observed)).logits.flatten(0, 1)
            logits.append(all_logits[part.index])
            target.append(torch.from_numpy(part.target))
            repeated.append(part.repeated)
    each = functional.cross_entropy(torch.cat(logits), torch.cat(target), reduction="none").numpy()
    repeated = np.concatenate(repeated)
    assert repeated.any() and not repeated.all()
    wanted = {"loss": each, "loss_repeated": each[repeated], "loss_new": each[~repeated]}
    for name, losses in wanted.items():
        assert found[name] == pytest.approx(losses.mean(), rel=1e-5)
    right = torch.cat(logits).argmax(dim=1) == torch.cat(target)
    assert found["accuracy"] == pytest.approx(right.float().mean().item())


def test_validation_rows_and_masks_are_fixed() -> None:
    """Validation rows and masks do not depend on the seed."""
    first, second = (data.validation_batches(text(), 8) for _ in range(2))
    assert sum(len(part.observed) for part in first) == 8
    for one, other in zip(first, second, strict=True):
        assert (one.observed == other.observed).all()
    assert sum(len(part.observed) for part in data.validation_batches(text(), 99)) == 10


# --- operations ---------------------------------------------------------------------------------


def test_variants_that_compute_less_cost_less_and_batches_in_proportion() -> None:
    """Operations follow the heads, in proportion to the batch."""
    cost = {
        name: experiment.step_flops(variant, SIZE, text(), batch=4)
        for name, variant in VARIANTS.items()
    }
    assert cost["v0"] < cost["v1"] < cost["base"]
    four, eight = (
        experiment.step_flops(VARIANTS["v1"], SIZE, text(), batch=batch) for batch in (16, 32)
    )
    assert eight == pytest.approx(2 * four)


def test_steps_for_a_budget() -> None:
    """Steps for a budget are rounded, with one at least."""
    assert experiment.steps_for(1000, 100) == 10
    assert experiment.steps_for(1000, 130) == 8
    assert experiment.steps_for(10, 130) == 1


def test_recipe() -> None:
    """The warm-up is a share of the steps, and the rate ends near 0."""
    choice = OptimisationSettings(warmup=0.2, betas=(0.8, 0.9), weight_decay=0.3, clip=2)
    found = experiment.recipe(choice, 50, 0.01)
    rates = [found.rate(step) for step in range(50)]
    assert np.argmax(rates) == 9 and max(rates) == pytest.approx(0.01)
    assert rates[-1] == pytest.approx(0.01 / 40)
    optimiser = found.build([torch.nn.Parameter(torch.zeros(2))])
    assert optimiser.defaults["betas"] == (0.8, 0.9)
    assert (optimiser.defaults["weight_decay"], found.clip) == (0.3, 2)


# --- configuration ------------------------------------------------------------------------------


def comparison(variant: str, baseline: str) -> dict[str, str]:
    return {"variant": variant, "baseline": baseline, "metric": "loss"}


def study(**changes: object) -> PretrainingSettings:
    variants = {"base": {"heads": {"learned": 4}}, "v1": {"heads": {"association": 4}}}
    variants["v1"]["heads"]["learned"] = 0
    whole = {"corpus": "stories", "model": {"n_heads": 4, "d_model": 16}, "variants": variants}
    return PretrainingSettings.model_validate(whole | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": {"v1": {"heads": {"learned": 4}}}}, "no variant named base"),
        ({"variants": {"base": {"heads": {"learned": 3}}}}, "0/0/3 .* has 3 heads, a layer has 4"),
        ({"variants": {"base": {"window": 4}}}, "window.*got 4"),
        ({"variants": {"base": {}, "data": {}}}, "variants: data"),
        ({"variants": {"base": {}, "b": {"flops_of": "v9"}}}, "no variant named v9"),
        ({"variants": {"base": {}, "b": {"rate_of": "b"}}}, "b.rate_of: b has"),
        ({"model": {"n_heads": 3, "d_model": 16}}, "d_model.*got 16"),
        ({"masking": {"random_prob": 0.6, "keep_prob": 0.6}}, "above 1"),
        ({"optimisation": {"learning_rates": [0.1, 0.1]}}, "given twice"),
        ({"tokenizer": {"d_vocab": 10}}, "greater than or equal to 32"),
        ({"length": 4}, "greater than or equal to 8"),
        ({"corpus": "figures"}, "corpus: figures"),
        ({"comparisons": {"a": comparison("v1", "none")}}, "no variant named none"),
    ],
)
def test_contradictory_settings(changes: dict, message: str) -> None:
    """Contradictory settings are refused with their key."""
    with pytest.raises(ValidationError, match=message):
        study(**changes)


def test_base_comes_first_and_removed_variants_take_their_comparisons_along() -> None:
    """Base is first; comparisons of removed variants are removed."""
    variants = {"v1": None, "other": {}, "base": {}}
    comparisons = {"a": comparison("v1", "base"), "b": comparison("other", "base")}
    found = study(variants=variants, comparisons=comparisons)
    assert [*found.variants] == ["base", "other"]
    assert [*found.comparisons] == ["b"]


def test_a_history_has_losses_and_operations_since_the_start() -> None:
    """The history has training losses since the last point, and operations."""

    class Run:
        loss = np.array([3.0, 2.0, 1.0])
        evaluations = [{"step": 0, "loss": 4.0}, {"step": 1, "loss": 3.0}, {"step": 3, "loss": 1.0}]

    table = train_script._history(Run, flops=10.0)
    expected = pd.DataFrame(
        {"step": [0, 1, 3], "loss": [4.0, 3.0, 1.0], "train_loss": [np.nan, 3.0, 1.5]}
    )
    pd.testing.assert_frame_equal(table, expected.assign(flops=[0.0, 10.0, 30.0]))


def test_steps_are_timed_in_turn_and_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants are timed in turn; the first round is a warm-up."""
    real, turns = timing._seconds, []

    def noting(step: Callable[[], object]) -> float:
        turns.append(step)
        return real(step) + (len(turns) <= len(VARIANTS))  # the first round is slow

    monkeypatch.setattr(timing, "_seconds", noting)
    seconds = cost.step_seconds(
        VARIANTS, SIZE, text(), OPTIMISATION, rounds=2, compute=experiment.Compute()
    )
    assert [*seconds] == [*VARIANTS]
    assert turns == turns[: len(VARIANTS)] * 3
    assert all(0 < value < 1 for value in seconds.values())
