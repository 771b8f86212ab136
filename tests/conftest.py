"""Fixtures: one thread for each test, options for slow tests, projects of the workflow."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports torch or a BLAS; jobs inherit it

import sys
from pathlib import Path

import pytest
from checkouts import ROOT, Checkout, copied, once, smoked
from hypothesis import settings
from trainings import Training

# Deadlines fail on a shared machine
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs slow tests."""
    parser.addoption("--slow", action="store_true", help="run what is marked `slow` as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked `slow` unless `--slow` is given, `gpu` where there is no CUDA device."""
    if not config.getoption("slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow, and --slow is not given"))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_runtest_setup() -> None:
    """Keep torch to one thread, without importing it for tests that need none."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


# --- projects ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder that all workers share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def inputs(shared: Path) -> Path:
    """Return the folder of models and texts that tiny.yaml names."""
    import tiny_models  # transformers takes seconds to import

    return once(shared, "inputs", tiny_models.save_inputs)


@pytest.fixture(scope="session")
def finished(shared: Path, inputs: Path) -> Path:
    """Return a project with the finished results of tiny.yaml; tests copy it."""
    return once(
        shared, "tiny", lambda folder: Checkout(copied(ROOT, folder), inputs=inputs).snakemake()
    )


@pytest.fixture(scope="session")
def smoke(shared: Path) -> Checkout:
    """Return a project with the results of config/smoke.yaml, which no test changes."""
    return Checkout(once(shared, "smoke", smoked))


@pytest.fixture
def checkout(finished: Path, tmp_path: Path) -> Checkout:
    """Return a copy of the finished project that the test may change."""
    return Checkout(copied(finished, tmp_path / "checkout", results=True))


@pytest.fixture
def fresh(inputs: Path, tmp_path: Path) -> Checkout:
    """Return the project itself with an empty folder for results."""
    return Checkout(ROOT, tmp_path / "elsewhere", inputs=inputs)


# --- trainings ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def uninterrupted(shared: Path) -> Training:
    """Return a training that ran to its end without interruption."""
    folder = once(shared, "uninterrupted", lambda folder: Training(folder).finish())
    return Training(folder)


@pytest.fixture
def training(tmp_path: Path, uninterrupted: Training) -> Training:
    """Return a training that the test may interrupt, with its corpus."""
    training = Training(tmp_path)
    training.take_corpus(uninterrupted)
    return training
