"""Which device a job computes on, leased so that two jobs never share one by accident.

A workflow manager may hand out a number of GPUs, but on a single machine nobody says which. Here
each job takes one slot of one device by locking a file, for as long as it computes. The operating
system frees the lock with the process, however that ends. torch is imported only to count devices.
"""

from __future__ import annotations

import logging
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

DeviceSetting = Literal["auto", "cpu", "cuda", "mps"]
DeviceKind = Literal["cpu", "cuda", "mps"]

_SECONDS_BETWEEN_TRIES = 0.2
_LOG = logging.getLogger(__name__)


class DeviceMissing(RuntimeError):
    """A kind of device was asked for by name, and torch finds none."""


class LocksUnusable(RuntimeError):
    """The folder of the locks, or a lock in it, cannot be made."""


def choose(
    setting: DeviceSetting, *, gpus_granted: int, device_count: int | None = None
) -> DeviceKind:
    """The kind of device that a job granted `gpus_granted` GPUs should use; granted 0, the CPU.

    `auto` takes what there is: CUDA, else MPS, else the CPU. `device_count` stands in for the
    number of CUDA devices that torch finds.
    Raises DeviceMissing if `cuda` or `mps` is asked for and absent.
    """
    if setting not in ("auto", "cpu", "cuda", "mps"):
        raise ValueError(f"device: {setting!r} is not one of auto, cpu, cuda, mps")
    if setting == "cpu" or gpus_granted < 1:
        return "cpu"
    wanted: tuple[DeviceKind, ...] = ("cuda", "mps") if setting == "auto" else (setting,)
    for kind in wanted:
        if _count(kind, device_count) > 0:
            return kind
    if setting == "auto":
        return "cpu"
    raise DeviceMissing(f"{setting} was asked for, but torch finds none here (try auto)")


@contextmanager
def lease(
    setting: DeviceSetting,
    *,
    gpus_granted: int,
    jobs_per_device: int = 1,
    folder: Path | None = None,
    device_count: int | None = None,
    timeout: float | None = None,
) -> Iterator[str]:
    """Holds one device for the length of the block and yields its torch name, such as `cuda:1`.

    At most `jobs_per_device` jobs hold a device at once; a new one goes to the least loaded, or
    waits for `timeout` seconds (None: for ever). The CPU needs no lease. Only devices are handed
    out that SLURM assigned, if it did: the jobs of one allocation share it like a machine. `folder`
    holds the locks: local to the machine, the same for all jobs (default: one per user under the
    system's temporary folder).
    Raises DeviceMissing as `choose` does, TimeoutError, and LocksUnusable.
    """
    if jobs_per_device < 1:
        raise ValueError(f"jobs per device: {jobs_per_device}, where at least 1 is needed")
    kind = choose(setting, gpus_granted=gpus_granted, device_count=device_count)
    count = _count(kind, device_count)
    if kind == "cpu":
        yield "cpu"
        return
    slots = {
        device: [f"{name}.{slot}.lock" for slot in range(jobs_per_device)]
        for device, name in _lock_names(kind, count).items()
    }
    device, lock = _wait_for_slot(slots, folder or _default_folder(), timeout)
    try:
        yield device
    finally:
        lock.release()


def _count(kind: DeviceKind, cuda_devices: int | None) -> int:
    """How many devices of a kind there are; `cuda_devices` stands in for what torch finds."""
    if kind == "cpu":
        return 1
    if kind == "cuda" and cuda_devices is not None:
        return cuda_devices
    import torch  # seconds, which a job on the CPU need not spend here

    return torch.cuda.device_count() if kind == "cuda" else int(torch.backends.mps.is_available())


def _slurm_job() -> str | None:
    """The SLURM job that chose the visible devices, if one did."""
    return os.environ.get("SLURM_JOB_ID") if os.environ.get("CUDA_VISIBLE_DEVICES") else None


def _lock_names(kind: DeviceKind, count: int) -> dict[str, str]:
    """The name that torch gives each device -> the name of its locks.

    torch counts the visible devices, so that one card has other numbers in other jobs; the lock
    goes by what the card is called outside. SLURM may renumber that as well, so there a lock holds
    among the jobs of one allocation.
    """
    if kind == "mps":
        return {"mps": "mps"}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards = visible.split(",")[:count] if visible else [str(i) for i in range(count)]
    allocation = f"slurm{job}." if (job := _slurm_job()) else ""
    names = [re.sub(r"\W", "_", card.strip()) for card in cards]
    return {f"cuda:{i}": allocation + name for i, name in enumerate(names)}


def _default_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"gpu-leases-{os.getuid()}"


def _wait_for_slot(
    slots: dict[str, list[str]], folder: Path, timeout: float | None
) -> tuple[str, FileLock]:
    """A device with a free slot, and the lock that holds it."""
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    waiting = False
    while not (taken := _try_slots(slots, folder)):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"no free slot on {', '.join(slots)} (locks in {folder})")
        if not waiting:
            _LOG.info("waiting for a free slot on %s", ", ".join(slots))
        waiting = True
        time.sleep(_SECONDS_BETWEEN_TRIES)
    return taken


def _try_slots(slots: dict[str, list[str]], folder: Path) -> tuple[str, FileLock] | None:
    """Takes a slot of the device with the most free ones, the first among equals."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The load of a device is known by trying its locks, so only one job may try at a time.
        with FileLock(folder / "choosing.lock"):
            free = {
                device: [lock for name in names if (lock := _try_lock(folder / name))]
                for device, names in slots.items()
            }
            device = max(free, key=lambda device: len(free[device]))
            taken = free[device].pop(0) if free[device] else None
            for lock in (lock for locks in free.values() for lock in locks):
                lock.release()
    except OSError as error:
        raise LocksUnusable(f"no GPU can be leased: {folder}: {error.strerror or error}") from error
    return (device, taken) if taken else None


def _try_lock(path: Path) -> FileLock | None:
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock
