"""What the settings of all studies share: the base class, names, seeds, comparisons, heads.

Unknown keys are errors, and values do not change. Three things hold for every mapping from names
to entries, such as `variants`:

- an entry that an overlay sets to null is removed before anything else is checked;
- `like: other` copies another entry of the mapping, and the keys beside it replace those copied;
- a key that was renamed is refused with its new name.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

NAME = r"^[A-Za-z][A-Za-z0-9_]*$"
REPEATED = re.compile(r"(.+)\1{19}$")


def _not_repeated(name: str) -> str:
    """Return the name; raise ValueError for one that Snakemake treats as infinite recursion."""
    if REPEATED.search(name):
        raise ValueError(
            f"name {name!r} ends with the same text repeated 20 times, which Snakemake would "
            "treat as infinite recursion"
        )
    return name


# A name in the configuration becomes part of paths, of wildcards and of the regular expressions
# that constrain them, so it must not contain a character that is special in any of these.
Name = Annotated[str, Field(pattern=NAME, max_length=100), AfterValidator(_not_repeated)]


def without_braces(path: Path) -> Path:
    """Return the path; raise ValueError if Snakemake would read a wildcard in it."""
    if braces := {"{", "}"} & {*str(path)}:
        raise ValueError(
            f"{path} contains {min(braces)}, which Snakemake would read as part of a wildcard"
        )
    return path


# A file or folder of the user's
UserPath = Annotated[Path, AfterValidator(without_braces)]


def distinct(entries: list | None) -> list | None:
    """Return the entries; raise ValueError if one occurs twice, since it would count twice."""
    if entries and len(set(entries)) < len(entries):
        raise ValueError(f"an entry is given twice: {', '.join(map(str, entries))}")
    return entries


# One replicate of everything random for each seed
Seeds = Annotated[list[NonNegativeInt], Field(min_length=1), AfterValidator(distinct)]


class Settings(BaseModel):
    """A group of configuration keys; every field carries the description that the schema shows.

    Attributes:
        renamed: Former names of keys with their present ones.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _prepared(cls, data: Any) -> Any:
        """Resolve `like`, drop removed entries, and refuse renamed keys and stray booleans."""
        if not isinstance(data, dict):
            return data
        for old, new in cls.renamed.items():
            if old in data:
                raise inconsistent(old, f"the key was renamed to {new}")
        data = cls._without_removed(data)
        for key, field in cls.model_fields.items():
            if get_origin(field.annotation) is dict and isinstance(data.get(key), dict):
                data[key] = _named_entries(key, data[key])
            if field.annotation is not bool and (booleans := _booleans(data.get(key))):
                raise inconsistent(key, f"expected no boolean, got {booleans[0]}")
        return data

    @classmethod
    def _without_removed(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of the raw section without what refers to removed entries."""
        return dict(data)


def _named_entries(key: str, entries: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a mapping, `like` resolved, without those that are null."""
    return {
        name: _resolved(f"{key}.{name}", entry, entries, (name,))
        for name, entry in entries.items()
        if entry is not None
    }


def _resolved(key: str, entry: Any, entries: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return an entry laid over the one that it is `like`; `names` are those on the way here."""
    if not isinstance(entry, dict) or "like" not in entry:
        return entry
    other = entry["like"]
    if not isinstance(other, str) or entries.get(other) is None:
        known = ", ".join(str(name) for name in entries if entries[name] is not None)
        raise inconsistent(f"{key}.like", f"no entry named {other}; there are {known}")
    if other in names:
        raise inconsistent(f"{key}.like", f"{other} is like itself: {' -> '.join(names)}")
    base = _resolved(key, entries[other], entries, (*names, other))
    own = {name: value for name, value in entry.items() if name != "like"}
    return overlaid(base, own)


def overlaid(base: Any, changes: Any) -> Any:
    """Return `base` with `changes` laid over it: mappings key by key, anything else whole."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {
        key: overlaid(base[key], value) if key in base else value for key, value in changes.items()
    }


def _booleans(value: Any) -> list[bool]:
    """Return the booleans in a value or a list; pydantic would read them as the numbers 0 and 1."""
    if isinstance(value, list | tuple):
        return [boolean for entry in value for boolean in _booleans(entry)]
    return [value] if isinstance(value, bool) else []


class ComparisonSettings(Settings):
    """A variant minus a baseline, seed by seed."""

    renamed = {"of": "variant", "over": "baseline", "towards": "normalise_by"}
    variant: Name = Field(description="The variant that is compared.")
    baseline: Name = Field(description="The variant that is subtracted.")
    metric: str = Field(description="A number in metrics.json, keys joined with dots.")
    normalise_by: Name | None = Field(
        None,
        description="A variant whose own difference from the baseline is the unit: 1 where the "
        "compared variant gains as much.",
    )


class VariantStudySettings(Settings):
    """A study that trains named variants, with the checks on whatever refers to them.

    Figures and comparisons that name a removed variant go with it; one that names a variant that
    was never there is an error.
    """

    seeds: Seeds = Field([0, 1, 2], description="One replicate of every training per seed.")
    max_steps: PositiveInt | None = Field(
        None, description="Upper limit on the steps of every training; for quick checks."
    )

    @classmethod
    def _without_removed(cls, data: dict[str, Any]) -> dict[str, Any]:
        data = dict(data)
        variants = data.get("variants")
        removed = (
            {n for n, v in variants.items() if v is None} if isinstance(variants, dict) else {}
        )
        if isinstance(figures := data.get("figures"), dict):
            data["figures"] = {
                figure: [name for name in names if str(name) not in removed]
                if isinstance(names, list)
                else names
                for figure, names in figures.items()
            }
        if isinstance(comparisons := data.get("comparisons"), dict):
            data["comparisons"] = {
                name: comparison
                for name, comparison in comparisons.items()
                if not isinstance(comparison, dict)
                or removed.isdisjoint(str(value) for value in comparison.values())
            }
        return data

    @field_validator("variants", "grids", "sweep", check_fields=False)
    @classmethod
    def _capped(cls, trained: Any, info: ValidationInfo) -> Any:
        """Return entries that have `steps` with no more of them than `max_steps`."""
        limit = info.data.get("max_steps")
        if limit is None:
            return trained
        if isinstance(trained, dict):
            return {name: cls._capped(entry, info) for name, entry in trained.items()}
        return trained.model_copy(update={"steps": min(trained.steps, limit)})

    @model_validator(mode="after")
    def _variants_known(self) -> Self:
        for figure, names in getattr(self, "figures", ()):
            check_distinct(f"figures.{figure}", names)
            for name in names:
                check_known(f"figures.{figure}", name, self.variants, "variant")
        for name, comparison in getattr(self, "comparisons", {}).items():
            for field in ("variant", "baseline", "normalise_by"):
                if (variant := getattr(comparison, field)) is not None:
                    check_known(f"comparisons.{name}.{field}", variant, self.variants, "variant")
        return self


class Heads(Settings):
    """How many heads of each kind a layer has; all have the same width."""

    learned: NonNegativeInt = Field(4, description="Heads of ordinary learned self-attention.")
    association: NonNegativeInt = Field(
        0, description="Hard-coded heads that average over the other positions of the same token."
    )
    convolution: NonNegativeInt = Field(
        0, description="Hard-coded heads with one learned weight per offset in a window."
    )

    @classmethod
    def parse(cls, split: str) -> Self:
        """Return the heads of a split association/convolution/learned, such as 6/6/0."""
        counts = split.split("/")
        if len(counts) != 3 or not all(count.isascii() and count.isdigit() for count in counts):
            raise ValueError(
                f"expected a split association/convolution/learned such as 6/6/0, got {split!r}"
            )
        association, convolution, learned = map(int, counts)
        return cls(association=association, convolution=convolution, learned=learned)

    @property
    def split(self) -> str:
        """Return the numbers of heads as association/convolution/learned."""
        return f"{self.association}/{self.convolution}/{self.learned}"

    @property
    def total(self) -> int:
        """Return the number of heads of a layer."""
        return self.learned + self.association + self.convolution

    def check_total(self, heads: int) -> None:
        """Raise ValueError if the heads are not as many as a layer has."""
        if self.total != heads:
            raise ValueError(
                f"the split {self.split} (association/convolution/learned) has {self.total} heads, "
                f"a layer has {heads}"
            )


def inconsistent(key: str, message: str) -> PydanticCustomError:
    """Return the error of a section's check about one of the keys below it."""
    return PydanticCustomError("inconsistent", "{key}: {message}", {"key": key, "message": message})


def is_file(path: Path) -> bool:
    """Return whether there is such a file; False for a name too long to look up."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Return whether there is such a folder; False for a name too long to look up."""
    try:
        return path.is_dir()
    except OSError:
        return False


def check_distinct(key: str, names: list[str]) -> None:
    """Raise if a list names something twice, since it would count twice."""
    try:
        distinct(names)
    except ValueError as error:
        raise inconsistent(key, str(error)) from None


def check_known(key: str, name: str, known: Iterable[str], kind: str) -> None:
    """Raise if a key has a name that is not among those known."""
    known = list(known)
    if name not in known:
        there = ", ".join(known) or "none"
        raise inconsistent(key, f"no {kind} named {name}; there are {there}")
