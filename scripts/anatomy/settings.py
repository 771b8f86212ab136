"""The base of every configuration model: unknown keys are errors, and values do not change."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
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
        raise inconsistent(key, f"no {kind} named {name}; there are {', '.join(known)}")
