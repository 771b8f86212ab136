"""Projects for the tests of the workflow: fresh ones, and copies of one that has run."""

from pathlib import Path

import pytest
from checkouts import ROOT, Checkout, copied
from filelock import FileLock


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A project with the finished results of tiny.yaml, made once for all workers. Only to copy."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent
    mark = base / "tiny-run-finished"
    with FileLock(base / "tiny-run.lock"):
        if not mark.exists():
            Checkout(copied(ROOT, base / "tiny")).snakemake()
            mark.touch()
    return base / "tiny"


@pytest.fixture
def checkout(finished: Path, tmp_path: Path) -> Checkout:
    """A project whose results are finished, to edit at will."""
    return Checkout(copied(finished, tmp_path / "checkout", results=True))


@pytest.fixture
def fresh(tmp_path: Path) -> Checkout:
    """The project as it is, with an empty folder elsewhere for results."""
    return Checkout(ROOT, tmp_path / "elsewhere")
