"""A training that is stopped, killed or resumed equals an undisturbed one."""

import logging
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from snakemake.iocontainers import InputFiles, OutputFiles, Params, Wildcards
from torch import Tensor, nn

from scripts.anatomy import artifacts, seeding
from scripts.anatomy.topic import corpora, settings
from scripts.anatomy.training import Recipe, Run, RunState, checkpoint_steps, fit
from scripts.topic import train as train_script

ROOT = Path(__file__).parents[2]
STEPS = 24
NEVER = 1e9  # seconds
RECIPES = {
    "adam": Recipe(STEPS, 0.01, "adam", "cosine", warmup=5, clip=0.5, weight_decay=0.01),
    "sgd": Recipe(STEPS, 0.1, "sgd", "linear", warmup=5, clip=0.5),
    "plain": Recipe(STEPS, 0.01),
}
recipes = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


# --- learning rates and optimisers --------------------------------------------------------------


@given(
    steps=st.integers(1, 300),
    warmup=st.integers(0, 50),
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    peak=st.floats(1e-5, 100),
)
def test_learning_rates_follow_their_closed_forms(
    steps: int, warmup: int, schedule: str, peak: float
) -> None:
    recipe = Recipe(steps, peak, schedule=schedule, warmup=warmup)
    s = np.arange(steps)
    u = (s - warmup) / max(steps - warmup, 1)  # share of the steps after the warm-up
    after = {"constant": 1 + 0 * u, "linear": 1 - u, "cosine": np.cos(np.pi * u / 2) ** 2}
    expected = peak * np.where(s < warmup, (s + 1) / max(warmup, 1), after[schedule])
    rates = [recipe.rate(step) for step in range(steps)]
    np.testing.assert_allclose(rates, expected, rtol=1e-9, atol=1e-12 * peak)
    assert min(rates) > 0  # no step is wasted, not even the last


def test_learning_rates_of_short_schedules() -> None:
    linear = Recipe(6, 8.0, schedule="linear", warmup=2)
    assert [linear.rate(step) for step in range(6)] == [4, 8, 8, 6, 4, 2]
    cosine = Recipe(4, 1.0, schedule="cosine")
    assert [cosine.rate(step) for step in (0, 2)] == pytest.approx([1, 0.5])


class Weight(nn.Module):
    """One vector, whose updates have closed forms."""

    def __init__(self, *start: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))


def descend(folder: Path, model: Weight, loss: Callable[[int], Tensor], recipe: Recipe) -> Tensor:
    """Return the vector after training."""
    with RunState(folder, "") as state:
        fit(model, loss, recipe, state=state, seed=0, checkpoint_steps=[0])
    return model.w.detach()


def test_every_step_takes_its_own_rate(tmp_path: Path) -> None:
    model = Weight(0.0)
    recipe = Recipe(9, 0.3, "sgd", "cosine", warmup=4)
    # a slope of 1 adds the rates up
    moved = descend(tmp_path, model, lambda _: model.w.sum(), recipe)
    assert moved.item() == pytest.approx(-sum(recipe.rate(step) for step in range(9)))


def test_sgd_has_no_momentum_and_an_l2_decay(tmp_path: Path) -> None:
    model = Weight(1.0, -2.0)
    recipe = Recipe(5, 0.1, "sgd", weight_decay=0.5)
    w = model.w.detach().clone()
    for step in range(5):
        w = w - 0.1 * ((2 * w + step) + 0.5 * w)
    moved = descend(tmp_path, model, lambda s: (model.w.square() + s * model.w).sum(), recipe)
    torch.testing.assert_close(moved, w)


def test_adam_is_adam_with_decoupled_decay(tmp_path: Path) -> None:
    model = Weight(1.0, -2.0)
    recipe = Recipe(6, 0.1, "adam", "linear", weight_decay=0.2)
    w, m, v = model.w.detach().clone(), torch.zeros(2), torch.zeros(2)
    for t in range(1, 7):
        g, rate = 2 * w + t - 1, recipe.rate(t - 1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w * (1 - rate * 0.2)
        w = w - rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    moved = descend(tmp_path, model, lambda s: (model.w.square() + s * model.w).sum(), recipe)
    torch.testing.assert_close(moved, w, rtol=1e-9, atol=0)


def test_clipping_limits_the_norm_and_keeps_the_direction(tmp_path: Path) -> None:
    slope = torch.tensor([3.0, -4.0], dtype=torch.float64)  # of norm 5
    for limit, step in ((2.0, slope * 2 / 5), (7.0, slope)):
        model = Weight(0.0, 0.0)
        recipe = Recipe(1, 1.0, "sgd", clip=limit)
        moved = descend(tmp_path / str(limit), model, lambda _, m=model: m.w @ slope, recipe)
        torch.testing.assert_close(moved, -step, rtol=1e-6, atol=0)


def test_checkpoints_of_short_runs() -> None:
    assert checkpoint_steps(1000, 4) == [0, 1, 10, 100, 1000]
    assert checkpoint_steps(64, 7) == [0, 1, 2, 4, 8, 16, 32, 64]
    assert checkpoint_steps(500, 1) == [0, 500]
    assert checkpoint_steps(1, 5) == [0, 1]


@given(steps=st.integers(1, 100_000), count=st.integers(1, 60))
def test_checkpoints_are_log_spaced_from_the_first_step_to_the_last(steps: int, count: int) -> None:
    spaced = checkpoint_steps(steps, count)
    assert spaced == sorted(set(spaced))
    assert (spaced[0], spaced[-1]) == (0, steps)
    assert 2 <= len(spaced) <= count + 1
    # a constant ratio between neighbours, except for rounding
    ratio = steps ** (1 / max(count - 1, 1))
    assert (np.array(spaced[2:]) <= ratio * (np.array(spaced[1:-1]) + 0.5) + 0.5 + 1e-6).all()


# --- stopping and resuming ----------------------------------------------------------------------


class Net(nn.Module):
    """A small network with dropout, which draws from the global generator, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.frozen = nn.Linear(6, 8)
        self.hidden = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(8, 1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(self.hidden(self.frozen(x)).tanh()))


def mean_square(net: Net, *purpose: str | int) -> Tensor:
    """Return the loss on the data of a purpose."""
    generator = seeding.torch_generator(3, *purpose)
    x = torch.randn(16, 6, generator=generator).to(net.out.weight.device)
    return (net(x)[:, 0] - x.prod(dim=1)).square().mean()


def attempt(
    folder: Path,
    recipe: Recipe,
    *,
    at_step: Callable[[int], object] = lambda _: None,
    save_every: float = NEVER,
    fingerprint: str = "one",
    device: str = "cpu",
    seed: int = 3,
) -> tuple[Net, Run]:
    """Train a network, calling `at_step` in the middle of every step."""
    net = Net().to(device)

    def loss_at(step: int) -> Tensor:
        at_step(step)
        return mean_square(net, "batch", step)

    def evaluate() -> dict[str, float]:
        return {"loss": mean_square(net, "held out").item(), "dropout": float(net.training)}

    with RunState(folder, fingerprint) as state:
        run = fit(
            net,
            loss_at,
            recipe,
            state=state,
            seed=seed,
            checkpoint_steps=checkpoint_steps(recipe.steps, 6),
            evaluate=evaluate,
            save_every=save_every,
            device=device,
        )
    return net, run


def assert_same_bits(one: tuple[Net, Run], other: tuple[Net, Run]) -> None:
    """Compare weights, losses, checkpoints and evaluations."""
    for name, tensor in one[0].state_dict().items():
        assert tensor.equal(other[0].state_dict()[name]), name
    np.testing.assert_array_equal(one[1].loss, other[1].loss)
    assert one[1].checkpoints.keys() == other[1].checkpoints.keys()
    for name, stack in one[1].checkpoints.items():
        np.testing.assert_array_equal(stack, other[1].checkpoints[name])
    assert one[1].evaluations == other[1].evaluations


def sending(number: int, *steps: int) -> Callable[[int], None]:
    """Return a function that sends this process a signal in the middle of these steps."""

    def at_step(step: int) -> None:
        if step in steps:
            os.kill(os.getpid(), number)

    return at_step


@recipes
def test_the_history_of_a_run(tmp_path: Path, recipe: Recipe) -> None:
    net, run = attempt(tmp_path, recipe)
    untrained = Net()
    steps = checkpoint_steps(STEPS, 6)
    assert run.loss.shape == (STEPS,)
    assert run.checkpoints["step"].tolist() == steps
    assert run.checkpoints.keys() == {"step"} | {
        f"{layer}.{kind}" for layer in ("hidden", "out") for kind in ("weight", "bias")
    }
    for name, stack in run.checkpoints.items():
        if name != "step":
            np.testing.assert_array_equal(stack[0], untrained.state_dict()[name])
            np.testing.assert_array_equal(stack[-1], net.state_dict()[name])
            assert (stack[1:] != stack[:-1]).any(axis=tuple(range(1, stack.ndim))).all()
    assert net.frozen.weight.equal(untrained.frozen.weight)
    assert [record["step"] for record in run.evaluations] == steps
    # evaluation mode, during evaluations and after training
    assert {record["dropout"] for record in run.evaluations} == {0.0}
    assert not net.training
    assert run.evaluations[-1]["loss"] == mean_square(net, "held out").item()


def test_the_first_loss_is_before_the_first_update_and_has_dropout(tmp_path: Path) -> None:
    _, run = attempt(tmp_path, RECIPES["adam"])
    net = Net().train()
    torch.manual_seed(seeding.derive(3, "step", 0))
    assert run.loss[0] == mean_square(net, "batch", 0).item()
    assert run.loss[0] != mean_square(net.eval(), "batch", 0).item()


@recipes
@pytest.mark.parametrize("draw", range(3))
def test_stopped_and_resumed_equals_undisturbed(
    tmp_path: Path, recipe: Recipe, draw: int, caplog: pytest.LogCaptureFixture
) -> None:
    stop = random.randrange(STEPS)
    with pytest.raises(SystemExit) as stopped:
        attempt(tmp_path / "stopped", recipe, at_step=sending(signal.SIGTERM, stop))
    assert stopped.value.code == 143
    assert f"stopped by signal 15 after step {stop + 1}" in caplog.text
    seen: list[int] = []
    torch.rand(draw + 1)  # the global generator has another state
    resumed = attempt(tmp_path / "stopped", recipe, at_step=seen.append)
    assert seen == list(range(stop + 1, STEPS))  # the step is finished, and none is repeated
    assert_same_bits(attempt(tmp_path / "straight", recipe), resumed)


@recipes
def test_stopped_at_every_step(tmp_path: Path, recipe: Recipe) -> None:
    for step in range(STEPS):
        with pytest.raises(SystemExit):
            attempt(tmp_path / "stopped", recipe, at_step=sending(signal.SIGTERM, step))
    finished = attempt(tmp_path / "stopped", recipe)
    assert_same_bits(attempt(tmp_path / "straight", recipe), finished)


def test_interrupted_from_the_keyboard(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        attempt(tmp_path, RECIPES["sgd"], at_step=sending(signal.SIGINT, 7))
    assert stopped.value.code == 130
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@recipes
@pytest.mark.parametrize("save_every", [0.0, NEVER])
def test_crashed_and_resumed_equals_undisturbed(
    tmp_path: Path, recipe: Recipe, save_every: float
) -> None:
    crash = random.randrange(1, STEPS)

    def at_step(step: int) -> None:
        if step == crash:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        attempt(tmp_path / "crashed", recipe, at_step=at_step, save_every=save_every)
    seen: list[int] = []
    resumed = attempt(tmp_path / "crashed", recipe, at_step=seen.append)
    assert seen[0] == (crash if save_every == 0 else 0)
    assert_same_bits(attempt(tmp_path / "straight", recipe), resumed)


def test_seeds_differ(tmp_path: Path) -> None:
    # the batches are the same, dropout differs
    _, one = attempt(tmp_path / "one", RECIPES["plain"], seed=3)
    _, other = attempt(tmp_path / "other", RECIPES["plain"], seed=4)
    assert (one.loss != other.loss).all()


def test_a_run_outside_the_main_thread(tmp_path: Path) -> None:
    outcomes: list[tuple[Net, Run]] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(attempt(tmp_path / "thread", RECIPES["adam"]))
    )
    thread.start()
    thread.join()
    assert_same_bits(attempt(tmp_path / "straight", RECIPES["adam"]), outcomes[0])


def test_a_finished_run_does_not_train_again(tmp_path: Path) -> None:
    first = attempt(tmp_path, RECIPES["adam"], save_every=0)
    seen: list[int] = []
    again = attempt(tmp_path, RECIPES["adam"], at_step=seen.append)
    assert seen == []
    assert_same_bits(first, again)


def test_progress_and_a_loss_that_is_not_finite_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Weight(1.0)
    with caplog.at_level(logging.INFO):
        descend(
            tmp_path,
            model,
            lambda step: model.w.sum() * (math.inf if step >= 3 else 1),
            Recipe(5, 0.1, "sgd"),
        )
    assert "step 5 of 5" in caplog.text
    assert "not finite from step 3 on" in caplog.text


@pytest.mark.gpu
def test_resumed_on_a_gpu(tmp_path: Path) -> None:
    recipe = RECIPES["adam"]
    with pytest.raises(SystemExit):
        attempt(tmp_path / "a", recipe, at_step=sending(signal.SIGTERM, 9), device="cuda")
    resumed, straight = (attempt(tmp_path / name, recipe, device="cuda") for name in "ab")
    for name, tensor in straight[0].state_dict().items():
        torch.testing.assert_close(resumed[0].state_dict()[name], tensor)
    np.testing.assert_allclose(resumed[1].loss, straight[1].loss, rtol=1e-4)


# --- the stored state ---------------------------------------------------------------------------


def stop(folder: Path, *, fingerprint: str = "one") -> None:
    """Store the state of a run that is stopped in the middle."""
    with pytest.raises(SystemExit):
        attempt(
            folder,
            RECIPES["adam"],
            at_step=sending(signal.SIGTERM, STEPS // 2),
            fingerprint=fingerprint,
        )


def test_a_state_with_another_fingerprint_is_deleted(tmp_path: Path) -> None:
    stop(tmp_path / "run", fingerprint="other")
    (tmp_path / "run" / "finished").mkdir()
    (tmp_path / "run" / "finished" / "weights").write_text("of the other run")
    with RunState(tmp_path / "run", "one"):
        assert {path.name for path in (tmp_path / "run").iterdir()} <= {"lock", "fingerprint"}
    seen: list[int] = []
    fresh = attempt(tmp_path / "run", RECIPES["adam"], at_step=seen.append)
    assert seen[0] == 0
    assert_same_bits(attempt(tmp_path / "straight", RECIPES["adam"]), fresh)


def test_a_state_without_a_fingerprint_is_deleted(tmp_path: Path) -> None:
    stop(tmp_path)
    (tmp_path / "fingerprint").unlink()
    with RunState(tmp_path, "one") as state:
        assert state.load() is None
    stop(tmp_path)
    with RunState(tmp_path, "one") as state:
        assert state.load() is not None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[:5],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: b"\x00" * len(content),
        lambda content: content.replace(b'step\\"', b'stap\\"', 1),
    ],
    ids=["empty", "header cut", "half", "last byte", "zeros", "no step"],
)
def test_training_restarts_if_the_state_is_damaged(
    tmp_path: Path, spoil: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    stop(tmp_path / "run")
    path = tmp_path / "run" / "state.safetensors"
    path.write_bytes(spoil(path.read_bytes()))
    seen: list[int] = []
    fresh = attempt(tmp_path / "run", RECIPES["adam"], at_step=seen.append)
    assert "cannot be read; starting afresh" in caplog.text
    assert seen[0] == 0
    assert_same_bits(attempt(tmp_path / "straight", RECIPES["adam"]), fresh)


def flipped(content: bytes) -> bytes:
    """Return the content with a bit flipped in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("file", ["state.safetensors", "checkpoints/{}.safetensors", "fingerprint"])
@pytest.mark.parametrize(
    "spoil",
    [flipped, lambda content: content[:-5], lambda _: b"", lambda _: b"\xff\xfe", lambda _: None],
    ids=["flipped", "cut", "empty", "garbage", "gone"],
)
def test_training_restarts_if_any_file_of_the_folder_is_damaged(
    tmp_path: Path, file: str, spoil: Callable[[bytes], bytes | None]
) -> None:
    stop(tmp_path / "run")
    path = tmp_path / "run" / file.format(f"{0:09d}")
    content = spoil(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    seen: list[int] = []
    again = attempt(tmp_path / "run", RECIPES["adam"], at_step=seen.append)
    assert seen[0] == 0
    assert_same_bits(attempt(tmp_path / "straight", RECIPES["adam"]), again)


@pytest.mark.parametrize("file", ["weights", "history", "digests.json"])
@pytest.mark.parametrize(
    "spoil", [flipped, lambda _: b"", lambda _: b"[1]", lambda _: b"\xff"],
    ids=["flipped", "empty", "a list", "garbage"],
)  # fmt: skip
def test_damaged_artifacts_of_a_finished_run_are_not_restored(
    tmp_path: Path, outputs: list[Path], file: str, spoil: Callable[[bytes], bytes]
) -> None:
    with RunState(tmp_path / "run", "one") as state:
        state.keep(outputs)
        for path in outputs:
            path.unlink()
        kept = tmp_path / "run/finished" / file
        kept.write_bytes(spoil(kept.read_bytes()))
        assert not state.restore(outputs)
        assert not any(path.exists() for path in outputs)


def test_temporary_files_of_a_killed_writer_are_deleted(tmp_path: Path) -> None:
    stop(tmp_path)
    for name in (".ab12.tmp.state.safetensors", "checkpoints/.ab12.tmp.000000003.safetensors"):
        (tmp_path / name).write_text("half")
    with RunState(tmp_path, "one") as state:
        assert not list(tmp_path.rglob("*.tmp.*"))
        assert state.load() is not None


@pytest.fixture
def outputs(tmp_path: Path) -> list[Path]:
    """Two artifacts of a run."""
    paths = [tmp_path / "results" / name for name in ("weights", "history")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_text(f"the {path.name}")
        os.utime(path, (1e9, 1e9))  # made long ago
    return paths


def test_kept_artifacts_are_restored(tmp_path: Path, outputs: list[Path]) -> None:
    stop(tmp_path / "run")
    with RunState(tmp_path / "run", "one") as state:
        assert not state.restore(outputs)
        state.keep(outputs)
    kept = tmp_path / "run" / "finished"
    assert all(path.samefile(kept / path.name) for path in outputs)  # no second copy on the disk
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {
        "lock",
        "fingerprint",
        "finished",
    }
    for path in outputs:
        path.unlink()
    (tmp_path / "input").touch()
    with RunState(tmp_path / "run", "one") as state:
        assert state.restore(outputs)
    for path in outputs:
        assert path.read_text() == f"the {path.name}"
        assert path.samefile(kept / path.name)
        assert path.stat().st_mtime_ns >= (tmp_path / "input").stat().st_mtime_ns


def test_restored_artifacts_replace_other_files(tmp_path: Path, outputs: list[Path]) -> None:
    with RunState(tmp_path / "run", "one") as state:
        state.keep(outputs)
        outputs[0].unlink()
        outputs[0].write_text("something else")
        assert state.restore(outputs)
    assert outputs[0].read_text() == "the weights"


def test_an_incomplete_set_of_artifacts_is_not_restored(
    tmp_path: Path, outputs: list[Path]
) -> None:
    with RunState(tmp_path / "run", "one") as state:
        state.keep(outputs[:1])
        outputs[0].unlink()
        assert not state.restore(outputs)
        assert not outputs[0].exists()  # all or nothing
        outputs[0].write_text("trained again")
        state.keep(outputs)
        outputs[0].unlink()
        assert state.restore(outputs)
    assert outputs[0].read_text() == "trained again"


def test_a_kill_while_artifacts_are_kept(tmp_path: Path, outputs: list[Path]) -> None:
    with RunState(tmp_path / "run", "one") as state:
        (tmp_path / "run" / "finishing").mkdir()  # left by a kill
        (tmp_path / "run" / "finishing" / "weights").write_text("the weights")
        assert not state.restore(outputs)
        state.keep(outputs)
        assert state.restore(outputs)


def test_nothing_is_restored_under_another_fingerprint(tmp_path: Path, outputs: list[Path]) -> None:
    with RunState(tmp_path / "run", "one") as state:
        state.keep(outputs)
    with RunState(tmp_path / "run", "other") as state:
        assert not state.restore(outputs)
    assert [path.read_text() for path in outputs] == ["the weights", "the history"]


# --- several processes --------------------------------------------------------------------------


def test_a_second_process_waits_for_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        "import sys; from pathlib import Path; from scripts.anatomy.training import RunState\n"
        "with RunState(Path(sys.argv[1]), 'one') as state:\n"
        "    print('inside', flush=True); sys.stdin.readline()\n"
        "    (state.folder / 'left').touch()\n"
    )
    order: list[str] = []

    def second() -> None:
        with RunState(tmp_path, "one") as state:
            order.append("second is in")
            assert (state.folder / "left").exists()

    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout.readline() == "inside\n"
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        order.append("first may go")
        first.stdin.write("\n")
        first.stdin.flush()
        waiting.join(timeout=10)
    assert order == ["first may go", "second is in"]
    assert "another process is training" in caplog.text


def training_job(folder: Path) -> SimpleNamespace:
    """Return the job of the topic study's training script for a tiny model."""
    variant = settings.TopicVariantSettings(
        model=settings.CompactModelSettings(attention="trained"),
        learning_rate=0.05,
        schedule="linear",
        warmup=10,
        clip=0.3,
        batch=7,
        steps=120,
        checkpoints=9,
    )
    names = {
        "weights": "weights.safetensors",
        "checkpoints": "checkpoints.safetensors",
        "history": "history.csv",
        "run": "run.json",
    }
    run = folder / "lda" / "tiny"
    output = {
        key: [str(run / f"seed{seed}" / name) for seed in (0, 1)] for key, name in names.items()
    }
    params = {
        "variant": variant.model_dump(mode="json", exclude={"corpora"}),
        "seeds": [0, 1],
        "code": "code",
    }
    return SimpleNamespace(
        input=InputFiles(fromdict={"corpus": [str(folder / "corpus.safetensors")] * 2}),
        output=OutputFiles(fromdict=output),
        params=Params(fromdict=params),
        wildcards=Wildcards(fromdict={"corpus": "lda", "variant": "tiny"}),
        threads=1,
        resources=SimpleNamespace(gpu=0),
        config={"compute": {"device": "cpu", "save_every": 0.03}},
    )


def results(folder: Path) -> dict[Path, bytes]:
    """Return all artifacts except run.json, which contains times."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.glob("lda/tiny/seed*/*"))
        if path.is_file() and path.name != "run.json"
    }


def test_a_job_killed_at_random_steps_and_resumed(tmp_path: Path) -> None:
    tiny = settings.LdaCorpusSettings(
        kind="lda",
        topics=3,
        words=12,
        min_length=4,
        max_length=9,
        train=60,
        validation=20,
    )
    corpus = corpora.sample(tiny, np.random.default_rng(0))
    for folder in (tmp_path / "straight", tmp_path / "killed"):
        folder.mkdir()
        corpora.save(folder / "corpus.safetensors", corpus)
    train_script.main(training_job(tmp_path / "straight"))

    # the child sleeps at every step, which changes no number
    code = (
        "import sys, time; from pathlib import Path; import test_training as t\n"
        "from scripts.anatomy import training\n"
        "update = training._Progress.update\n"
        "training._Progress.update = lambda *args: (time.sleep(0.01), update(*args))\n"
        "t.train_script.main(t.training_job(Path(sys.argv[1])))\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{ROOT}"}
    state = tmp_path / "killed/lda/tiny/seed0/.state/state.safetensors"
    steps = []
    for _ in range(2):
        before = state.stat().st_mtime_ns if state.exists() else None  # of the killed run
        child = subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / "killed"], cwd=ROOT, env=environment
        )
        while not state.exists() or state.stat().st_mtime_ns == before:
            assert child.poll() is None
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.4))
        child.kill()
        assert child.wait() == -signal.SIGKILL
        steps.append(int(artifacts.read_metadata(state)["step"]))
    assert 0 < steps[0] < steps[1] < 120
    assert results(tmp_path / "killed") == {}

    train_script.main(training_job(tmp_path / "killed"))
    assert len(results(tmp_path / "straight")) == 6
    assert results(tmp_path / "killed") == results(tmp_path / "straight")

    # a job that runs again after it has finished only restores its artifacts
    records = sorted(tmp_path.glob("killed/lda/tiny/seed*/run.json"))
    before = [path.read_text() for path in records]
    for path in tmp_path.glob("killed/lda/tiny/seed*/*.*"):
        if path.is_file():
            path.unlink()
    train_script.main(training_job(tmp_path / "killed"))
    assert results(tmp_path / "killed") == results(tmp_path / "straight")
    assert [path.read_text() for path in records] == before
