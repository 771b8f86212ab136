"""Random generators that are data: every draw is seeded by the config seed and by what it is for.

Two purposes never share a stream, and adding a draw for a new purpose changes no older one.
A global generator is touched for others' code alone, and put back.
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
    """The 63-bit seed that belongs to `seed` and `purpose`, the same on every machine.

    Words and numbers are told apart (`1` is not `"1"`), and so is where each of them ends
    (`"a", "bc"` is not `"ab", "c"`). Raises TypeError for anything but whole numbers and strings.
    """
    parts = [index(seed), *(part if isinstance(part, str) else index(part) for part in purpose)]
    # JSON quotes and separates, so that different purposes are different texts.
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator of its own for this seed and purpose."""
    return np.random.default_rng(derive(seed, *purpose))


def torch_generator(
    seed: int, *purpose: str | int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """A torch generator of its own for this seed and purpose, on `device`.

    Devices draw different numbers from the same seed: what must be equal on all of them is drawn
    on the CPU and moved. (torch's CPU generator keeps the low 32 bits of the seed.)
    """
    import torch  # here, since a script that only needs numpy should not wait for it

    return torch.Generator(device).manual_seed(derive(seed, *purpose))


@contextmanager
def torch_seeded(seed: int, *purpose: str | int) -> Iterator[None]:
    """Within the block torch's own CPU generator is seeded; after it, it is as it was.

    For code of others that draws from it, such as the initial weights of a library's model.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        # of the CPU alone: `torch.manual_seed` would seed GPUs too, whose state is not kept here
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
