"""The provenance of a result: seed, machine, code version and cost."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "transformers")


def record(*, seed: int | None, device: str, started: float) -> dict[str, Any]:
    """Return the provenance of a result, ready for JSON.

    `device` is torch's name (`cpu`, `cuda:1`); `started` is the value of `time.perf_counter()` when
    the work began. Keys: seed, device, device_name, versions, commit (null outside a git checkout),
    seconds, peak_memory_mb (of the process) and peak_gpu_memory_mb (of torch's tensors on a CUDA
    device, else null). The machine's name is left out. On Linux a process starts with the peak of
    the process that forked it.
    """
    return {
        "seed": seed,
        "device": device,
        "device_name": device_name(device),
        "versions": versions(),
        "commit": commit(),
        "seconds": round(time.perf_counter() - started, 3),
        "peak_memory_mb": peak_memory_mb(),
        "peak_gpu_memory_mb": peak_gpu_memory_mb(device),
    }


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of numerical packages; None if not installed."""
    installed: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)  # from its metadata: importing takes seconds
        except PackageNotFoundError:
            installed[package] = None
    return installed


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """Return the git commit of the checkout that contains `folder` (default: this code), or None.

    It ends in `-dirty` if a tracked file differs from it.
    """
    describe = ["describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    # Other jobs call git at the same time: without optional locks they do not conflict.
    command = ["git", "--no-optional-locks", "-C", str(folder), *describe]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, no checkout, no commit yet
        return None


def device_name(device: str) -> str:
    """Return the model of the processor or graphics card that torch calls `device`."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def peak_memory_mb() -> float:
    """Return the peak memory of this process in MB (10^6 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return round(peak * unit / 1e6, 1)


def peak_gpu_memory_mb(device: str) -> float | None:
    """Return the peak memory of torch's tensors on a CUDA device in MB; None for other devices."""
    if not device.startswith("cuda"):
        return None
    import torch

    return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
