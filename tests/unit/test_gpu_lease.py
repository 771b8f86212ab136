"""Each job leases a device slot of its own, whatever happens to other jobs."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
import torch

from scripts.anatomy import gpu_lease
from scripts.anatomy.gpu_lease import DeviceMissing, choose, lease

ROOT = Path(__file__).parents[2]
JOB = """
import sys, time
from pathlib import Path
from scripts.anatomy.gpu_lease import lease

folder, jobs_per_device, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
options = dict(gpus_allocated=1, jobs_per_device=jobs_per_device, folder=folder, device_count=2)
with lease("auto", **options) as device:
    start = time.monotonic()
    print(device, start, flush=True)
    time.sleep(seconds)
    print(time.monotonic())
assert "torch" not in sys.modules
"""

Lease = Callable[..., AbstractContextManager[str]]


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of schedulers; tests set their own."""
    for name in ("SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def take(tmp_path: Path) -> Lease:
    """A lease of one of two simulated devices that does not wait."""
    return partial(lease, "auto", gpus_allocated=1, folder=tmp_path, device_count=2, timeout=0)


def start_job(folder: Path, jobs_per_device: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", JOB, str(folder), str(jobs_per_device), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


# --- which kind ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "allocated", "count", "kind"),
    [
        ("auto", 1, 2, "cuda"),
        ("auto", 1, 0, "cpu"),
        ("auto", 0, 2, "cpu"),
        ("cpu", 1, 2, "cpu"),
        ("cuda", 1, 1, "cuda"),
        ("cuda", 0, 1, "cpu"),
        ("cuda", 0, 0, "cpu"),
    ],
)
def test_the_kind_of_device(
    monkeypatch: pytest.MonkeyPatch,
    setting: gpu_lease.DeviceSetting,
    allocated: int,
    count: int,
    kind: str,
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose(setting, gpus_allocated=allocated, device_count=count) == kind


def test_a_kind_that_is_absent_or_unknown_is_refused(
    take: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for setting, count in (("cuda", 0), ("mps", None)):
        with pytest.raises(DeviceMissing, match=f"^{setting} is requested"):
            choose(setting, gpus_allocated=1, device_count=count)
    with (
        pytest.raises(DeviceMissing),
        lease("cuda", gpus_allocated=1, device_count=0),
    ):
        pass
    with pytest.raises(ValueError, match="auto, cpu, cuda, mps, got 'gpu'"):
        choose("gpu", gpus_allocated=1)  # type: ignore[arg-type]


def test_mps_is_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    again = partial(lease, gpus_allocated=1, folder=tmp_path, device_count=0, timeout=0)
    with again("auto") as device, pytest.raises(TimeoutError), again("mps"):
        pass
    assert device == "mps"


def test_the_cpu_needs_no_lease_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from scripts.anatomy.gpu_lease import lease\n"
        f"locks = Path({str(tmp_path / 'locks')!r})\n"
        "with lease('auto', gpus_allocated=0, folder=locks) as device:\n"
        "    assert device == 'cpu' and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert not (tmp_path / "locks").exists()


# --- slots --------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs_per_device", [1, 4])
def test_eight_jobs_share_two_devices(tmp_path: Path, jobs_per_device: int) -> None:
    jobs = [start_job(tmp_path, jobs_per_device, 0.3) for _ in range(8)]
    outputs = [job.communicate(timeout=30)[0].split() for job in jobs]
    assert all(job.returncode == 0 for job in jobs)
    spans = [(device, float(start), float(end)) for device, start, end in outputs]
    for group in combinations(spans, jobs_per_device + 1):
        together = max(start for _, start, _ in group) < min(end for _, _, end in group)
        assert not (together and len({device for device, _, _ in group}) == 1)
    assert {device for device, _, _ in spans} == {"cuda:0", "cuda:1"}


def test_a_killed_job_frees_its_device(tmp_path: Path, take: Lease) -> None:
    job = start_job(tmp_path, 1, 60)
    assert job.stdout is not None
    assert job.stdout.readline().startswith("cuda:0")
    with take() as device, pytest.raises(TimeoutError, match="no free slot on cuda:0, cuda:1"):
        with take():
            pass
    assert device == "cuda:1"
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    job.stdout.close()
    with take() as device:
        assert device == "cuda:0"


def test_an_error_in_the_block_frees_the_device(take: Lease) -> None:
    for _ in range(3):
        with pytest.raises(KeyError), take() as device:
            raise KeyError
        assert device == "cuda:0"


def test_the_least_loaded_device_comes_first(take: Lease) -> None:
    take = partial(take, jobs_per_device=3)
    with ExitStack() as first, ExitStack() as second:
        assert first.enter_context(take()) == "cuda:0"
        assert second.enter_context(take()) == "cuda:1"
        assert first.enter_context(take()) == "cuda:0"
        assert second.enter_context(take()) == "cuda:1"
        first.close()
        with take() as one, take() as two, take() as three:
            assert [one, two, three] == ["cuda:0", "cuda:0", "cuda:0"]


def test_a_waiting_job_logs_one_line_and_times_out(
    take: Lease, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_lease, "_SECONDS_BETWEEN_TRIES", 0.01)
    with caplog.at_level("INFO", logger=gpu_lease.__name__), take(), take():
        with pytest.raises(TimeoutError), take(timeout=0.1):
            pass
    assert [record.message for record in caplog.records] == [
        "waiting for a free slot on cuda:0, cuda:1"
    ]


def test_the_module_imports_nothing_of_this_project() -> None:
    tree = ast.parse(Path(gpu_lease.__file__).read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - sys.stdlib_module_names == {"filelock", "torch"}


# --- environment variables ----------------------------------------------------------------------


def test_only_devices_that_slurm_assigned_are_leased(
    take: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with take(device_count=1) as one:
        monkeypatch.setenv("SLURM_JOB_ID", "8")  # whose card 3 is another one, or shared on purpose
        with take(device_count=1) as other:
            assert one == other == "cuda:0"  # what torch calls the only card that it sees


def test_jobs_of_one_allocation_share_its_devices(
    take: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grouped jobs, or a whole Snakemake, may run inside one SLURM job."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with take(device_count=1), pytest.raises(TimeoutError), take(device_count=1):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with take() as one, take() as other:
        assert [one, other] == ["cuda:0", "cuda:1"]
        monkeypatch.setenv("SLURM_JOB_ID", "8")  # its cards 0 and 1 are others
        with take() as elsewhere:
            assert elsewhere == "cuda:0"


def test_the_locks_of_a_card_do_not_depend_on_its_number(
    take: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    with take() as device:
        assert device == "cuda:0"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
        with take() as first, pytest.raises(TimeoutError), take():
            pass
        assert first == "cuda:0"  # card 1
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-1/7/0")
        with take(device_count=1) as slice_of_a_card:
            assert slice_of_a_card == "cuda:0"


def test_the_default_folder_is_local_and_per_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_lease.tempfile, "gettempdir", lambda: "/somewhere")
    assert gpu_lease._default_folder() == Path(f"/somewhere/gpu-leases-{os.getuid()}")
