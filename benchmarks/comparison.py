"""What every comparison shares: its result, a fair clock, and the default configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from scripts.anatomy import timing
from scripts.anatomy.configuration import Config, validate

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes:
        what: What was compared with what.
        ratio: The number measured; times faster, or a share.
        unit: "times" or "%".
        aim: What the number should be at least (times) or at most (%), if there is an aim.
        details: The measurements behind the ratio, by name; seconds unless the name says otherwise.
        note: What a reader must know to judge the number.
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
    """Median seconds of each, run in turn so that a slow spell of the machine meets them all.

    A first round warms caches up and does not count.
    """
    return timing.interleaved(contestants, repeats)


def default_config() -> Config:
    """The configuration in `config.yaml`."""
    return validate(yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")))
