"""Projects for the tests of the workflow: fresh ones, and copies of one that has run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from checkouts import ROOT, Checkout, copied
from filelock import FileLock


def once(base: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made once for all workers. Only to copy."""
    mark = base / f"{name}-finished"
    with FileLock(base / f"{name}.lock"):
        if not mark.exists():
            make(base / name)
            mark.touch()
    return base / name


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all workers have in common."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def inputs(shared: Path) -> Path:
    """The models and the text that tiny.yaml names."""
    import tiny_models  # here, for transformers takes seconds

    return once(shared, "inputs", tiny_models.save_inputs)


@pytest.fixture(scope="session")
def finished(shared: Path, inputs: Path) -> Path:
    """A project with the finished results of tiny.yaml."""
    return once(
        shared, "tiny", lambda folder: Checkout(copied(ROOT, folder), inputs=inputs).snakemake()
    )


@pytest.fixture
def checkout(finished: Path, tmp_path: Path) -> Checkout:
    """A project whose results are finished, to edit at will."""
    return Checkout(copied(finished, tmp_path / "checkout", results=True))


@pytest.fixture
def fresh(inputs: Path, tmp_path: Path) -> Checkout:
    """The project as it is, with an empty folder elsewhere for results."""
    return Checkout(ROOT, tmp_path / "elsewhere", inputs=inputs)
