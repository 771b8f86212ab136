"""Small disks and file size limits for the length of a test."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class Disk:
    """A file system in memory, mounted on a folder by root."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def remount(self, option: str) -> None:
        """Change the size, or make the disk read-only."""
        self._mount("-o", f"remount,{option}")

    def fill(self) -> Path:
        """Write a file that takes all the room that is left."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"\0" * 4096):  # a page
                pass
        return filler

    def _mount(self, *arguments: str) -> None:
        command = ["mount", *arguments, str(self.folder)]
        if os.geteuid() != 0:
            pytest.skip("only root may mount a small disk")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no small disk: {done.stderr.strip()}")


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Disk]:
    """Mount a small disk on a folder; skip the test where that is impossible."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Disk(folder, size)
    try:
        yield made
    finally:
        # lazily, since a process of a killed test may still have a file open there
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit the files that this process writes to `size` bytes: a full disk without root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
