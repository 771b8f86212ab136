"""Every script that trains saves its state on SIGTERM, and its next run continues.

Each script is stopped within its first training, in the test's own process.
"""

import importlib
import logging
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import Checkout, copied
from likeness import bits

from scripts import job
from scripts.anatomy import training

GRID = {"topic": {"grids": {"tau": {"varies": "tau", "values": [2, 3], "measures": ["value"]}}}}
# an artifact of every rule that trains
ARTIFACTS = [
    "topic/lda/value_squared/seed0/weights.safetensors",
    "topic/sweep/points.csv",
    "topic/grid/tau/points.csv",
    "lego/chain/chain_tied/seed0/weights.safetensors",
    "lego/published_chains/pretrained/seed0/weights.safetensors",
    "pretraining/stories/base/tuning/rates.csv",
    "pretraining/stories/v1/seed0/model/model.safetensors",
    "embedding/finetuning/mine/seed0/weights.safetensors",
]


@pytest.fixture(scope="module")
def project(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with finished results and one grid that has not been trained."""
    folder = tmp_path_factory.mktemp("project") / "checkout"
    Checkout(copied(finished, folder, results=True)).configure(**GRID)
    return folder


@pytest.fixture(scope="module")
def workflow(project: Path) -> Iterator[Any]:
    """Its workflow, with the rules loaded."""
    before = Path.cwd()
    os.chdir(project)
    with job._workflow({}, ["mine.yaml"]) as loaded:
        os.chdir(before)
        yield loaded


def stopped_at_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send SIGTERM after every step of a training."""
    update = training._Progress.update

    def terminated(progress: training._Progress, step: int, *rest: Any) -> None:
        update(progress, step, *rest)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(training._Progress, "update", terminated)


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_terminated_training_continues(
    artifact: str, project: Path, workflow: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(project)
    caplog.set_level(logging.INFO)
    rule = job._producer(f"results/{artifact}", workflow)
    todo = job._job(f"results/{artifact}", rule, workflow, None)
    outputs = [Path(path) for path in todo.output]
    script = importlib.import_module(f"scripts.{'.'.join(Path(rule.script).parts[-2:])[:-3]}")
    if not outputs[0].exists():
        script.main(todo)  # the grid
    undisturbed = [bits(path) for path in outputs]
    for path in outputs:
        path.unlink()
    for state in Path(os.path.commonpath(outputs)).rglob(".state"):
        shutil.rmtree(state)

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as stopped:
        stopped_at_first_step(patched)
        script.main(todo)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert "stopped by signal 15 after step 2" in caplog.text
    assert not any(path.exists() for path in outputs)
    script.main(todo)
    assert "going on from step 2" in caplog.text
    assert [bits(path) for path in outputs] == undisturbed
