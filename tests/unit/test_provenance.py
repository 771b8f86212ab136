"""The provenance of a result, measured without importing torch."""

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.anatomy import provenance
from scripts.anatomy.provenance import commit, device_name, peak_memory_mb, record, versions

ROOT = Path(__file__).parents[2]


def test_the_keys_of_a_record() -> None:
    started = time.perf_counter() - 2
    made = json.loads(json.dumps(record(seed=3, device="cpu", started=started)))
    assert set(made) == {
        *("seed", "device", "device_name", "versions", "commit", "seconds"),
        *("peak_memory_mb", "peak_gpu_memory_mb"),
    }
    assert (made["seed"], made["device"], made["peak_gpu_memory_mb"]) == (3, "cpu", None)
    assert 2 <= made["seconds"] < 30
    assert platform.node() not in made.values()
    assert record(seed=None, device="cpu", started=started)["seed"] is None


def test_versions_are_those_of_the_imported_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = versions()
    assert installed["python"] == platform.python_version()
    assert installed["numpy"] == np.__version__
    assert installed["torch"] is not None
    assert torch.__version__.startswith(installed["torch"].partition("+")[0])
    monkeypatch.setattr(provenance, "PACKAGES", ("no-such-package",))
    assert versions()["no-such-package"] is None


def test_peak_memory_includes_an_array() -> None:
    held = np.ones(6_000_000)
    assert held.nbytes / 1e6 < peak_memory_mb() < 100_000


def test_the_card_and_memory_of_a_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card of {device}")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 2_500_000)
    made = record(seed=0, device="cuda:1", started=time.perf_counter())
    assert made["device_name"] == "card of cuda:1"
    assert made["peak_gpu_memory_mb"] == 2.5
    assert device_name("cpu")


def test_commit_of_a_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "code.py").write_text("x = 1")
    assert commit(tmp_path) is None  # nothing committed
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "tag", "v1")
    clean = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "untracked").touch()
    (tmp_path / "below").mkdir()
    assert commit(tmp_path / "below") == clean
    (tmp_path / "code.py").write_text("x = 2")
    assert commit(tmp_path) == f"{clean}-dirty"


def test_there_is_no_commit_without_a_checkout_or_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(ROOT) is None


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints, run with an author of the test."""
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *author, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_record_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from scripts.anatomy.provenance import record;"
        "record(seed=0, device='cpu', started=0.0);"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
