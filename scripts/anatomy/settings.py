"""The base of every configuration model: unknown keys are errors, and values do not change."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, model_validator
from pydantic_core import PydanticCustomError

NAME = r"^[A-Za-z][A-Za-z0-9_]*$"
REPEATED = re.compile(r"(.+)\1{19}$")


def _not_repeated(name: str) -> str:
    """The name; ValueError for one that Snakemake takes for an endless recursion."""
    if REPEATED.search(name):
        raise ValueError(f"the name {name} ends in twenty times the same")
    return name


# A name that the configuration gives. It becomes part of paths, of wildcards and of the regular
# expressions that constrain them, where none of its letters may mean anything.
Name = Annotated[str, Field(pattern=NAME, max_length=100), AfterValidator(_not_repeated)]


def without_braces(path: Path) -> Path:
    """The path; ValueError if Snakemake, whose rules have it as an input, would find wildcards."""
    if braces := {"{", "}"} & {*str(path)}:
        raise ValueError(f"{path} has a {min(braces)}, which is no part of a path to Snakemake")
    return path


# A file or folder of the user's
Place = Annotated[Path, AfterValidator(without_braces)]


class Settings(BaseModel):
    """A group of configuration keys; every field carries the description that the schema shows."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_stray_switch(cls, data: Any) -> Any:
        """Refuse yes and no where a number is wanted; pydantic would take them for 1 and 0."""
        if isinstance(data, dict):
            for key, field in cls.model_fields.items():
                if field.annotation is not bool and (found := _switches(data.get(key))):
                    raise inconsistent(key, f"{found[0]} is a switch, which this is not")
        return data


def _switches(value: Any) -> list[bool]:
    """The switches in a value, or among the entries of a list."""
    if isinstance(value, list | tuple):
        return [found for entry in value for found in _switches(entry)]
    return [value] if isinstance(value, bool) else []


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


def is_file(path: Path) -> bool:
    """Whether there is such a file; not, where nothing can be looked up (a name without end)."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """The same of a folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


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
