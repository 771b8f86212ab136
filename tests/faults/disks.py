"""Disks that are small, and stay so only for a test."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class Disk:
    """A file system of its own in a folder, mounted by root."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def remount(self, option: str) -> None:
        """Change its size, or whether it can be written."""
        self._mount("-o", f"remount,{option}")

    def fill(self) -> Path:
        """A file that takes all the room that is left."""
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
    """A small disk in a folder; skips the test where there can be none."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Disk(folder, size)
    try:
        yield made
    finally:
        # at once if a killed test's process still has a file open there
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows past so many bytes: a full disk that needs no root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
