"""Timing of alternatives in turn, so that a slow spell of the machine affects all of them."""

import statistics
import time
from collections.abc import Callable, Sequence


def in_turn(runs: Sequence[Callable[[], object]], repeats: int) -> list[tuple[float, ...]]:
    """Return the seconds of `repeats` calls of each run, after one warm-up round."""
    rounds = [[_seconds(run) for run in runs] for _ in range(repeats + 1)]
    return list(zip(*rounds[1:], strict=True))


def interleaved(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median seconds of each run, see `in_turn`."""
    return [statistics.median(seconds) for seconds in in_turn(runs, repeats)]


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
