"""LEGO runs: laws from the configuration, supervision, training that repeats, measurements."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from scripts.anatomy import artifacts
from scripts.anatomy.lego import counting_baseline, evaluation, experiment, metrics, settings, tasks
from scripts.anatomy.lego.models import LibraryTransformer
from scripts.anatomy.models.loading import UnfitModel
from scripts.anatomy.training import RunState
from tests import tiny_models

SMALL = {
    "n_layers": 2, "d_model": 16, "d_ff": 16, "norm": "pre", "init": None,
    "heads": [{"learned": 2, "association": 1, "convolution": 1}],
}  # fmt: skip
TASK = settings.TaskSettings(n=4, letters=6)


def variant(**choices: object) -> settings.LegoVariantSettings:
    return settings.LegoVariantSettings.model_validate(
        {"task": "chain", "model": SMALL, "steps": 4, "batch": 8, "eval_points": 2} | choices
    )


@pytest.mark.parametrize(
    ("choice", "n"),
    [
        ({"kind": "path"}, 4),
        ({"kind": "paths", "count": 2}, 4),
        ({"kind": "varied", "min_length": 2}, 4),
        ({"kind": "branch"}, 4),
        ({"kind": "star"}, 5),
        ({"kind": "balanced"}, 6),
        ({"kind": "recursive"}, 5),
    ],
)
@pytest.mark.parametrize("group", ["z2", "d3", "s3", "klein", "z5"])
def test_every_task_of_the_configuration_can_be_sampled(choice: dict, n: int, group: str) -> None:
    """Every kind of task in the schema can be built and sampled."""
    task = tasks.Task.from_settings(
        settings.TaskSettings(n=n, letters=8, group=group, graph=choice)
    )
    batch = tasks.seeded_sample(task, 20, seed=0)
    assert batch.tokens.shape == (20, task.layout.length(n))
    assert 0 <= batch.values.min() and batch.values.max() < task.group.order


def test_table_that_is_not_a_group() -> None:
    """A table that is not a group is refused with the elements that fail."""
    table = {"names": ["e", "a"], "table": [[0, 1], [1, 1]]}
    with pytest.raises(ValueError, match="inverse|associat"):
        tasks.Task.from_settings(settings.TaskSettings(n=3, group=table))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"mimicking": {}, "model": SMALL | {"heads": [{"learned": 1, "association": 3}]}}, "2"),
        ({"leaf_only": True, "n_tr": 2}, "leaf_only"),
        ({"model": SMALL | {"window": 4}}, "window.*got 4"),
        ({"model": SMALL | {"d_model": 18}}, "multiple"),
        ({"model": SMALL | {"library": True}}, "library"),
        ({"model": {"d_embedding": 8}}, "d_embedding"),
        ({"pretrained": {"model": "bert"}}, "model"),
    ],
)
def test_contradictory_settings(choices: dict, message: str) -> None:
    """Contradictory settings are refused with their key."""
    with pytest.raises(ValidationError, match=message):
        variant(**choices)


def test_supervised_positions() -> None:
    """Supervised positions follow n_tr, leaf_only and the curriculum."""
    assert experiment.supervised(variant(), 4) == [0, 1, 2, 3]
    assert experiment.supervised(variant(n_tr=2), 4) == [0, 1]
    assert experiment.supervised(variant(leaf_only=True), 4) == [3]
    growing = variant(curriculum=10, n_tr=3)
    assert [len(experiment.supervised(growing, 4, step)) for step in (0, 9, 10, 25, 99)] == [
        1, 1, 2, 3, 3
    ]  # fmt: skip


def trained(folder: Path, **choices: object) -> tuple[dict[str, torch.Tensor], pd.DataFrame]:
    task = tasks.Task.from_settings(TASK)
    model = experiment.build(variant(**choices), task, 1)
    with RunState(folder, "x") as state:
        run = experiment.train(
            model, variant(**choices), task, seed=1, state=state,
            test=tasks.seeded_sample(task, 30, 1),
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
    """Equal seeds give equal weights; curves start after mimicking."""
    first, curves = trained(tmp_path / "a", **choices)
    again, _ = trained(tmp_path / "b", **choices)
    assert all(torch.equal(first[name], again[name]) for name in first)
    start = 3 if "mimicking" in choices else 0
    assert curves["step"].tolist() == [start, start + 2, start + 4]
    assert [c for c in curves if c.startswith("position")] == [f"position{k}" for k in range(4)]


def test_mimicking_has_a_learning_rate_of_its_own(tmp_path: Path) -> None:
    """mimicking.learning_rate changes the weights; null is the rate of the task."""
    weights = {}
    for rate in (None, variant().learning_rate, 0.1):
        choices = {"mimicking": {"steps": 3, "batch": 4, "learning_rate": rate}}
        weights[rate], _ = trained(tmp_path / str(rate), **choices)
    default, same, other = weights.values()
    assert all(torch.equal(default[name], same[name]) for name in default)
    assert not all(torch.equal(default[name], other[name]) for name in default)


def test_unsupervised_positions_get_no_gradient() -> None:
    """The loss does not depend on unsupervised positions."""
    task = tasks.Task.from_settings(TASK)
    model = experiment.build(variant(), task, 0)
    batch = experiment.tensors(tasks.seeded_sample(task, 8, 0))
    changed = experiment.Tensors(batch.tokens, batch.values.clone(), batch.indices)
    changed.values[:, 2:] = 1 - changed.values[:, 2:]
    losses = [
        experiment._task_loss(model, b, variant(n_tr=2), 4, 0).item() for b in (batch, changed)
    ]
    assert losses[0] == losses[1]


def test_measurements_of_a_perfect_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is always right has the expected record."""
    task = tasks.Task.from_settings(TASK)
    held = tasks.seeded_sample(task, 50, 0)
    wrong_at_2 = held.values.copy()
    wrong_at_2[:, 2] = 1 - wrong_at_2[:, 2]
    monkeypatch.setattr(metrics, "predictions", lambda *_, **__: wrong_at_2)
    model = experiment.build(variant(), task, 0)
    found = evaluation._accuracies(model, held, [1.0, 0.6, 0.6, 1.0], [0, 1])
    assert found["chain"] and found["by_depth"] == [1, 1, 0, 1] and found["sentences"] == 50
    assert found["worst_supervised"] == 1 and found["worst"] == 0 and found["reach"] == 1
    assert found["extrapolation"]["mean"] == 0.5
    assert found["extrapolation"]["first_above_counting_baseline"] == pytest.approx(-0.6)
    order = evaluation._order(
        np.array([[1, 0.5, 0.5, 0.5], [1, 0.6, 0.5, 1], [1, 1, 0.7, 1]]), np.array([0, 10, 20])
    )
    assert order["solved_at"] == [0, 20, None, 10]
    assert order["middle_after_leaf"] == 2


def test_sentences_until_a_task_is_solved() -> None:
    """Sentences to solve count neither mimicking nor unsupervised positions."""
    curve = {"step": [5, 15, 25], "position0": [0.5, 1, 1], "position1": [0.5, 0.94, 0.96]}
    history = pd.DataFrame(curve | {"position2": [0.5, 0.5, 0.5]})
    assert evaluation._sentences_to_solve(history, [0], 8) == 80
    assert evaluation._sentences_to_solve(history, [0, 1], 8) == 160
    assert evaluation._sentences_to_solve(history, [0, 1, 2], 8) is None


def test_measurements_of_every_kind_of_model() -> None:
    """All kinds of heads, tasks and groups can be measured."""
    probing = settings.ProbingSettings(test=40, train=60, maps=10)
    for task_settings, choices in (
        (TASK, {}),
        (settings.TaskSettings(n=4, letters=6, group="d3"), {"one_logit": False}),
        (settings.TaskSettings(n=4, letters=6, graph={"kind": "paths"}), {"n_tr": 2}),
    ):
        task = tasks.Task.from_settings(task_settings)
        model = experiment.build(variant(**choices), task, 0).eval()
        history = pd.DataFrame({"step": [0, 4]} | {f"position{k}": [0.5, 0.6] for k in range(4)})
        with torch.inference_mode():
            found = evaluation.evaluate(
                model, variant(**choices), task_settings, task, probing, history, [0.5] * 4, seed=0
            )
        assert len(found["percolation"]["accuracy"]) == 3  # embeddings and two layers
        assert 0 <= found["shortcut"]["two_chains_agreement"] <= 1
        assert ("extrapolation" in found) == ("n_tr" in choices)
        assert np.shape(found["heads"]["association"]) == (2, 2)


# --- models of others ---------------------------------------------------------------------------


def of_library(**choices: object) -> settings.LegoVariantSettings:
    shape = {"n_layers": 2, "d_model": 16, "d_ff": 16, "heads": [{"learned": 2}], "library": True}
    return variant(model=shape | choices)


def of_reader(**choices: object) -> settings.LegoVariantSettings:
    """A variant that starts from a pretrained model."""
    return settings.LegoVariantSettings.model_validate(
        {"task": "x", "pretrained": {"model": "reader"} | choices, "steps": 2, "batch": 4,
         "eval_points": 1}
    )  # fmt: skip


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    tiny_models.save_reader(folder)
    return folder


PUBLISHED = settings.TaskSettings(n=4, letters=8, layout="published")


def test_a_pretrained_model_starts_from_its_weights_and_reads_its_own_tokens(
    reader: Path, tmp_path: Path
) -> None:
    """A pretrained variant has the model's weights and tokens."""
    choice = of_reader()
    task = experiment.task_of(choice, PUBLISHED, reader)
    words = tasks.seeded_sample(task, 1, 0).tokens[0]
    assert words[0] == task.layout.vocabulary["[CLS]"] != 0
    states = []
    for folder in ("a", "b"):
        model = experiment.build(choice, task, 1, reader)
        stored = artifacts.read_tensors(reader / "model.safetensors", framework="torch")
        for name, weight in model.encoder.state_dict().items():
            assert torch.equal(weight, stored[name])
        with RunState(tmp_path / folder, "x") as state:
            experiment.train(
                model, choice, task, seed=1, state=state,
                test=tasks.seeded_sample(task, 10, 1),
            )  # fmt: skip
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["encoder.embeddings.word_embeddings.weight"],
                           stored["embeddings.word_embeddings.weight"])  # fmt: skip


def test_the_control_of_a_pretrained_model(reader: Path) -> None:
    """The control has random weights in the same architecture."""
    task = experiment.task_of(of_reader(), PUBLISHED, reader)
    own = experiment.build(of_reader(dropout=0), task, 0, reader)
    control = experiment.build(of_reader(random=True), task, 0, reader)
    weights = [
        m.encoder.encoder.layer[0].attention.self.query.weight.detach() for m in (own, control)
    ]
    assert weights[0].std() > 0.2 and weights[1].std() == pytest.approx(0.02, rel=0.2)
    assert torch.equal(own.classifier.weight, control.classifier.weight)
    drops = [{m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
             for model in (own, control)]  # fmt: skip
    assert drops == [{0}, {0.1}]


def test_pretrained_models_that_are_refused(reader: Path, tmp_path: Path) -> None:
    """Decoders and encoders with too few positions are refused."""
    task = experiment.task_of(of_reader(), PUBLISHED, reader)
    tiny_models.save_llama(tmp_path / "decoder")
    with pytest.raises(UnfitModel, match="llama"):
        experiment.build(of_reader(), task, 0, tmp_path / "decoder")
    tiny_models.save_reader(tmp_path / "short", positions=10)
    with pytest.raises(UnfitModel, match="22 positions.*got 10"):
        experiment.build(of_reader(), task, 0, tmp_path / "short")
    with pytest.raises(ValueError, match="the tokenizer does not know 'xyz'"):
        experiment.task_of(of_reader(words={"not": "xyz"}), PUBLISHED, reader)


@pytest.mark.parametrize("tied", [False, True])
def test_shape_of_library_models(tied: bool) -> None:
    """Library models have the configured shape."""
    task = tasks.Task.from_settings(TASK)
    choice = of_library(tied=tied, **({"d_embedding": 8} if tied else {}))
    model = experiment.build(choice, task, 0)
    assert isinstance(model, LibraryTransformer)
    config = model.encoder.config
    assert (config.model_type, config.num_hidden_layers, config.vocab_size) == (
        "albert" if tied else "bert", 2, task.layout.d_vocab,
    )  # fmt: skip
    again = experiment.build(choice, task, 0).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("library", [False, True])
def test_more_iterations_are_those_of_a_deeper_model(library: bool) -> None:
    """More iterations of a tied model equal a deeper model; an untied model has none."""
    task = tasks.Task.from_settings(TASK)
    make = of_library if library else lambda **c: variant(model=SMALL | c)
    shallow = experiment.build(make(tied=True, n_layers=2), task, 0).eval()
    deep = experiment.build(make(tied=True, n_layers=5), task, 0).eval()
    deep.load_state_dict(shallow.state_dict())
    batch = experiment.tensors(tasks.seeded_sample(task, 6, 0))
    with torch.inference_mode():
        wanted = deep(batch.tokens, batch.indices)
        assert torch.equal(shallow(batch.tokens, batch.indices, iterations=5), wanted)
        read = shallow.read(batch.tokens, batch.indices, iterations=5).hidden
        assert read.shape[1] == 6
        assert not torch.allclose(shallow(batch.tokens, batch.indices), wanted)
        untied = experiment.build(make(tied=False), task, 0)
        with pytest.raises(ValueError, match="iterations.*got 3"):
            untied(batch.tokens, batch.indices, iterations=3)


def test_weights_of_another_layout_are_refused_in_one_line(tmp_path: Path) -> None:
    """Weights of another layout are refused in one line."""
    path = tmp_path / "weights.safetensors"
    artifacts.write_tensors(
        path, experiment.build(variant(), tasks.Task.from_settings(TASK), 0).state_dict()
    )
    other = tasks.Task.from_settings(settings.TaskSettings(n=4, letters=6, layout="published"))
    with pytest.raises(artifacts.UnreadableArtifact, match="another layout or model: .*W_E") as e:
        experiment.load(experiment.build(variant(), other, 0), path)
    assert "\n" not in str(e.value)


# --- sentences held back ------------------------------------------------------------------------


def test_held_out_letters_are_in_no_training_sentence() -> None:
    """Held-out letters occur in no training sentence."""
    task = tasks.Task.from_settings(settings.TaskSettings(n=3, letters=10, held_out=4))
    unseen = tasks.with_held_out_letters(task, 4)
    letters = task.layout.ids(task.layout.letters)
    for law, own in ((task, letters[:6]), (unseen, letters[6:])):
        used = np.intersect1d(tasks.seeded_sample(law, 300, 0).tokens, letters)
        assert set(used) == set(own)
    for letters, held_out, key in ((5, 3, "letters"), (10, 2, "held_out")):
        with pytest.raises(ValidationError, match=f"{key}.*got 2"):
            settings.TaskSettings(n=3, letters=letters, held_out=held_out)


def test_a_fixed_training_set_is_not_tested_on() -> None:
    """Test sentences exclude those of a fixed training set."""
    task = tasks.Task.from_settings(settings.TaskSettings(n=2, letters=3))
    choice = variant(sentences=30)
    train = experiment._fixed(choice, task, 0)
    test = experiment.test_sentences(choice, task, 200, 0)
    seen = {row.tobytes() for row in train.tokens}
    assert 0 < len(test) < 200
    assert not seen & {row.tobytes() for row in test.tokens}


# --- shortcuts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [True, False])
def test_shortcut_of_counting_and_walking_models(
    counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counting model has agreement 1; a walking model does not."""
    task = tasks.Task.from_settings(settings.TaskSettings(n=6, letters=8))

    def predicted(_: object, batch: object) -> np.ndarray:
        values = np.maximum(batch.values, 0)  # what is open is guessed
        if counts:
            values = values.copy()
            leaf = 2 if (batch.parents == -1).sum() == 2 * len(values) else 5
            values[:, leaf] = counting_baseline.counted(task.group, batch)
        return values

    monkeypatch.setattr(evaluation, "_predicted", predicted)
    found = evaluation._shortcut(None, task, 2000, 0)
    if counts:
        assert found["two_chains_agreement"] == found["branch_agreement"] == 1
        assert found["severed_agreement"] == 1
        assert found["branch_gap"] == pytest.approx(0.5, abs=0.05)
    else:
        assert found["two_chains_accuracy"] == found["branch_accuracy"] == 1
        assert found["branch_gap"] == 0
        assert found["severed_agreement"] == pytest.approx(0.5, abs=0.05)
    assert found["severed_accuracy_before_cut"] == 1
    assert found["branch_agreement"] == pytest.approx(1 if counts else 0.5, abs=0.05)
