"""Where a number comes from: what was computed, on what, with which code, and at what cost."""

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
    """The provenance of a result, ready for JSON.

    `device` is torch's name of it (`cpu`, `cuda:1`); `started` is what `time.perf_counter()` said
    when the work began. Keys: seed, device, device_name, versions, commit (null outside a git
    checkout), seconds, peak_memory_mb (of the process) and peak_gpu_memory_mb (of torch's tensors
    on a CUDA device, else null). The machine's name is left out. On Linux a process that was
    started by a larger one begins with that one's peak.
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
    """The versions of Python and of the packages that numbers depend on; null if not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)  # read from its metadata: importing takes seconds
        except PackageNotFoundError:
            found[package] = None
    return found


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The git commit of the checkout around `folder` (default: of this code), or None.

    It ends in `-dirty` if a tracked file differs from it.
    """
    describe = ["describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    # Other jobs ask at the same time: without optional locks none gets in another's way.
    command = ["git", "--no-optional-locks", "-C", str(folder), *describe]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, no checkout, no commit yet
        return None


def device_name(device: str) -> str:
    """The model of the processor or graphics card behind torch's name of a device."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def peak_memory_mb() -> float:
    """The most memory that this process has held, in MB (10^6 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return round(peak * unit / 1e6, 1)


def peak_gpu_memory_mb(device: str) -> float | None:
    """The most memory that torch's tensors have held on a CUDA device, in MB, else None."""
    if not device.startswith("cuda"):
        return None
    import torch

    return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
