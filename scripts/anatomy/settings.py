"""The base of every configuration model: unknown keys are errors, and values do not change."""

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator
from pydantic_core import PydanticCustomError

# A name that the configuration gives, which becomes part of paths
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]


class Settings(BaseModel):
    """A group of configuration keys; every field carries the description that the schema shows."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_stray_switch(cls, data: Any) -> Any:
        """Refuse yes and no where a number is wanted; pydantic would take them for 1 and 0."""
        if isinstance(data, dict):
            for key, field in cls.model_fields.items():
                if isinstance(data.get(key), bool) and field.annotation is not bool:
                    raise inconsistent(key, f"{data[key]} is a switch, which this is not")
        return data


class Heads(Settings):
    """The kinds of a layer's heads, all of the same width."""

    learned: NonNegativeInt = Field(4, description="Heads of ordinary learned self-attention.")
    association: NonNegativeInt = Field(
        0, description="Hard-coded heads that average over the other places of the same token."
    )
    convolution: NonNegativeInt = Field(
        0, description="Hard-coded heads with one learned weight per offset in a window."
    )

    @classmethod
    def parse(cls, split: str) -> Self:
        """The heads that a split names: association/convolution/learned, such as 6/6/0."""
        counts = split.split("/")
        if len(counts) != 3 or not all(count.isascii() and count.isdigit() for count in counts):
            raise ValueError(f"{split!r} is no split, association/convolution/learned, like 6/6/0")
        association, convolution, learned = map(int, counts)
        return cls(association=association, convolution=convolution, learned=learned)

    @property
    def split(self) -> str:
        """The heads as association/convolution/learned."""
        return f"{self.association}/{self.convolution}/{self.learned}"

    @property
    def total(self) -> int:
        """All heads of a layer."""
        return self.learned + self.association + self.convolution

    def check_total(self, heads: int) -> None:
        """Raise ValueError if the split has not got as many heads as a layer."""
        if self.total != heads:
            raise ValueError(
                f"the split {self.split} (association/convolution/learned) has {self.total} heads, "
                f"a layer has {heads}"
            )


def inconsistent(key: str, message: str) -> PydanticCustomError:
    """The error of a section's cross-check about one of the keys below it."""
    return PydanticCustomError("inconsistent", "{key}: {message}", {"key": key, "message": message})


def present(entries: dict) -> dict:
    """Named entries without those that an overlay removed with null."""
    return {name: entry for name, entry in entries.items() if entry is not None}


def distinct(entries: list) -> list:
    """The entries; ValueError if one is given twice, for it would be counted twice."""
    if len(set(entries)) < len(entries):
        raise ValueError(f"an entry is given twice: {', '.join(map(str, entries))}")
    return entries


def check_known(key: str, name: str, known: Iterable[str], kind: str) -> None:
    """Raise if a key names something that is not there."""
    known = list(known)
    if name not in known:
        there = ", ".join(known) or "none"
        raise inconsistent(key, f"no {kind} named {name}; there are {there}")
