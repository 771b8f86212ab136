"""One thread for every test, and GPU tests only where there is a GPU."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports torch or a BLAS; jobs inherit it

import sys

import pytest
from hypothesis import settings

# A machine that others use as well has no steady clock.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is no CUDA device."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_runtest_setup() -> None:
    """Keep torch to one thread, without importing it for tests that need none."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
