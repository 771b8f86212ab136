"""The result of a benchmark, a fair clock, and the default configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from scripts.anatomy import timing
from scripts.anatomy.configuration import Config, validate

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """The result of a benchmark: one line of the table.

    Attributes:
        what: What was compared with what.
        ratio: The measured number: a speed-up or a share.
        unit: "times" or "%".
        aim: Minimum (times) or maximum (%) of the ratio, if there is an aim.
        details: The measurements behind the ratio by name; in seconds unless the name has a unit.
        note: Conditions of the measurement.
    """

    what: str
    ratio: float
    unit: str
    aim: float | None
    details: dict[str, float]
    note: str

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        if self.aim is None:
            return None
        return self.ratio <= self.aim if self.unit == "%" else self.ratio >= self.aim


def seconds(*contestants: Callable[[], object], repeats: int) -> list[float]:
    """Return the median seconds of each.

    They run in turn, so that a slow spell of the machine affects all. A first round, which warms
    caches up, does not count.
    """
    return timing.interleaved(contestants, repeats)


def default_config() -> Config:
    """Return the configuration in `config.yaml`."""
    return validate(yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")))
