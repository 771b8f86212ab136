"""The base of every configuration model: unknown keys are errors, and values do not change."""

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """A group of configuration keys; every field carries the description that the schema shows."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def inconsistent(key: str, message: str) -> PydanticCustomError:
    """The error of a section's cross-check about one of the keys below it."""
    return PydanticCustomError("inconsistent", "{key}: {message}", {"key": key, "message": message})
