"""A fair clock: what is compared takes turns, so that a slow spell of the machine meets it all."""

import statistics
import time
from collections.abc import Callable, Sequence


def seconds(run: Callable[[], object]) -> float:
    """How long `run` takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def interleaved(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each, in turn; a first round warms caches up and does not count."""
    rounds = [[seconds(run) for run in runs] for _ in range(repeats + 1)]
    return [statistics.median(times) for times in zip(*rounds[1:], strict=True)]
