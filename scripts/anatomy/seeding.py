"""Random generators, each seeded by the configured seed and by the purpose of its draws.

Two purposes never share a stream, so a draw for a new purpose changes no other result. A global
generator is only seeded for code of other libraries, and is restored afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *purpose: str | int) -> int:
    """Return the 63-bit seed of `seed` and `purpose`, equal on every machine.

    `1` and `"1"` are different purposes, and so are `"a", "bc"` and `"ab", "c"`. Raises TypeError
    for anything but integers and strings.
    """
    parts = [index(seed), *(part if isinstance(part, str) else index(part) for part in purpose)]
    # JSON quotes and separates, so that different purposes are different texts.
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a new numpy generator for this seed and purpose."""
    return np.random.default_rng(derive(seed, *purpose))


def torch_generator(
    seed: int, *purpose: str | int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """Return a new torch generator for this seed and purpose, on `device`.

    Devices draw different numbers from the same seed: draw on the CPU and move what must be equal
    on all of them. (torch's CPU generator uses the low 32 bits of the seed.)
    """
    import torch  # takes seconds, which scripts with numpy alone save

    return torch.Generator(device).manual_seed(derive(seed, *purpose))


@contextmanager
def torch_seeded(seed: int, *purpose: str | int) -> Iterator[None]:
    """Seed torch's global CPU generator within the block, and restore its state afterwards.

    For libraries that draw from it, such as for the initial weights of a model.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        # `torch.manual_seed` would also seed GPUs, whose state is not restored here
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
