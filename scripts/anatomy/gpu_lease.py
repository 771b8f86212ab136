"""Leases of devices, so that two jobs never share a GPU by accident.

A workflow manager counts GPUs, but on a single machine it does not assign one to a job. Here each
job takes one slot of one device by locking a file while it computes. The operating system releases
the lock when the process ends, however it ends. torch is imported only to count devices.
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
from typing import Literal, get_args

from filelock import FileLock, Timeout

DeviceSetting = Literal["auto", "cpu", "cuda", "mps"]
DeviceKind = Literal["cpu", "cuda", "mps"]

_SECONDS_BETWEEN_TRIES = 0.2
_LOG = logging.getLogger(__name__)


class DeviceMissing(RuntimeError):
    """A kind of device was requested by name, and torch has none."""


class LocksUnusable(RuntimeError):
    """The folder of the locks, or a lock in it, cannot be created."""


def choose(
    setting: DeviceSetting, *, gpus_allocated: int, device_count: int | None = None
) -> DeviceKind:
    """Return the kind of device for a job with `gpus_allocated` GPUs; the CPU if that is 0.

    `auto` is CUDA if present, else MPS, else the CPU. `device_count` replaces the number of CUDA
    devices that torch reports.
    Raises DeviceMissing if `cuda` or `mps` is requested and absent.
    """
    if setting not in get_args(DeviceSetting):
        expected = ", ".join(get_args(DeviceSetting))
        raise ValueError(f"device: expected one of {expected}, got {setting!r}")
    if setting == "cpu" or gpus_allocated < 1:
        return "cpu"
    for kind in ("cuda", "mps") if setting == "auto" else (setting,):
        if _count(kind, device_count) > 0:
            return kind
    if setting == "auto":
        return "cpu"
    raise DeviceMissing(f"{setting} is requested, but torch has no such device here (try auto)")


@contextmanager
def lease(
    setting: DeviceSetting,
    *,
    gpus_allocated: int,
    jobs_per_device: int = 1,
    folder: Path | None = None,
    device_count: int | None = None,
    timeout: float | None = None,
) -> Iterator[str]:
    """Hold one device within the block, and yield its torch name, such as `cuda:1`.

    At most `jobs_per_device` jobs hold a device at the same time. A new one takes the least loaded
    device, or waits for `timeout` seconds (None: forever). The CPU needs no lease. Under SLURM only
    the assigned devices are leased, and the jobs of one allocation share them. `folder` contains
    the locks: it is local to the machine and the same for all jobs (default: one per user in the
    system's temporary folder).
    Raises DeviceMissing as `choose` does, TimeoutError, and LocksUnusable.
    """
    if jobs_per_device < 1:
        raise ValueError(f"jobs_per_device: expected 1 or more, got {jobs_per_device}")
    kind = choose(setting, gpus_allocated=gpus_allocated, device_count=device_count)
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
    """Return the number of devices of a kind; `cuda_devices` replaces what torch reports."""
    if kind == "cpu":
        return 1
    if kind == "cuda" and cuda_devices is not None:
        return cuda_devices
    import torch  # takes seconds, which a job on the CPU saves

    return torch.cuda.device_count() if kind == "cuda" else int(torch.backends.mps.is_available())


def _slurm_job() -> str | None:
    """Return the SLURM job that assigned the visible devices, or None."""
    return os.environ.get("SLURM_JOB_ID") if os.environ.get("CUDA_VISIBLE_DEVICES") else None


def _lock_names(kind: DeviceKind, count: int) -> dict[str, str]:
    """Return torch's name of each device with the name of its locks.

    torch numbers the visible devices, so one card has different numbers in different jobs; the lock
    has the card's name in CUDA_VISIBLE_DEVICES. SLURM may renumber these too, so a lock there is
    shared by the jobs of one allocation only.
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
    """Return a device with a free slot, and the lock that holds the slot."""
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    waiting = False
    while not (slot := _try_slots(slots, folder)):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"no free slot on {', '.join(slots)} (locks in {folder})")
        if not waiting:
            _LOG.info("waiting for a free slot on %s", ", ".join(slots))
        waiting = True
        time.sleep(_SECONDS_BETWEEN_TRIES)
    return slot


def _try_slots(slots: dict[str, list[str]], folder: Path) -> tuple[str, FileLock] | None:
    """Take a slot of the device with the most free slots; the first such device on a tie."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A device's load is measured by trying its locks, so only one job may try at a time.
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
