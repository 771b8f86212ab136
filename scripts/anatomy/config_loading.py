"""Read a file of settings, and report what is wrong with it: one line for each mistake, key first.

Snakemake reads the file with a loader of its own, which keeps the last of two equal keys, omits the
file's name from errors, or prints a traceback.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from scripts.anatomy.settings import NAME

MAX_DEPTH = 30  # nested keys and lists; the schema has fewer than ten
MAX_VALUES = 1_000_000
MAX_FILE_SIZE = 20_000_000  # bytes
MAX_NUMBER = 2**53  # beyond it a float cannot represent every integer
MAX_LINES, MAX_LINE_LENGTH, MAX_PART_LENGTH = 40, 500, 120
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Keys that have a meaning for Snakemake; it evaluates a file that has the first one
RESERVED = ("__use_yte__", "pathvars")
Key = tuple[Any, ...]


class ConfigError(ValueError):
    """Mistakes in a configuration, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        shown = list(lines)
        if len(shown) > MAX_LINES:
            shown[MAX_LINES:] = [f"... and {len(shown) - MAX_LINES} more mistakes"]
        super().__init__("\n".join(map(printable, shown)))


def printable(text: str) -> str:
    """Return text as one line for a terminal: control characters escaped, a long end cut off."""
    safe = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text[: MAX_LINE_LENGTH + 1]
    )
    return safe if len(safe) <= MAX_LINE_LENGTH else safe[: MAX_LINE_LENGTH - 4] + " ..."


# --- files --------------------------------------------------------------------------------------


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # C takes a tenth of the time
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the node's value; raise YAMLError, with its position, for whatever is wrong."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError):  # such as the date 2001-99-99
            kind = node.tag.rpartition(":")[2]
            raise _error(f"{_cut(node.value)!r} is not a valid {kind}", node) from None


def _error(message: str, part: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=part.start_mark)


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a YAML or JSON file whose top level is a mapping.

    Raises:
        ConfigError: One line with the file and, if known, the line in it.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("expected a file, found a folder or a device")
        if path.stat().st_size > MAX_FILE_SIZE:
            raise ValueError(f"expected at most {MAX_FILE_SIZE // 10**6} MB")
        value = _parsed(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError(f"expected keys with values at the top level, got {_shown(value)}")
        for key in RESERVED:
            if key in value:
                raise ValueError(f"{key}: unknown key; Snakemake would give it a meaning")
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else path
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise ConfigError([f"{place}: invalid YAML: {reason}"]) from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: {' '.join(str(error).split())}"]) from None
    return value


def _parsed(content: bytes) -> Any:
    """Return the value of a JSON or YAML text; JSON if it is both, as Snakemake reads it."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line}: expected UTF-8 text") from None
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError:
        pass  # then it is YAML
    _check_structure(text)
    return yaml.load(text, Loader=_Loader)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if duplicates := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"duplicate key {duplicates[0]}")
    return dict(pairs)


@dataclass
class _Collection:
    """A mapping or list of a YAML text that has begun: its keys (None for a list), its values."""

    anchor: str | None = None
    keys: set[str] | None = None
    children: int = 0
    values: int = 1


def _check_structure(text: str) -> None:
    """Raise YAMLError for what PyYAML accepts or cannot bear.

    These are duplicate keys, deep nesting, an alias in the value that it names, and nested aliases
    that expand to more values than memory can hold.
    """
    begun, values_of = [_Collection()], {}
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            keys = set() if isinstance(event, yaml.MappingStartEvent) else None
            begun.append(_Collection(event.anchor, keys))
            if len(begun) > MAX_DEPTH + 1:
                raise _error(f"nested more than {MAX_DEPTH} levels deep", event)
            continue
        values = 1
        if isinstance(event, yaml.CollectionEndEvent):
            ended = begun.pop()
            values_of[ended.anchor] = values = ended.values
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in [collection.anchor for collection in begun]:
                raise _error(f"the alias {event.anchor} is in the value that it names", event)
            values = values_of.get(event.anchor, 1)
        elif not isinstance(event, yaml.ScalarEvent):
            continue
        parent = begun[-1]
        if isinstance(event, yaml.ScalarEvent) and parent.keys is not None:
            if parent.children % 2 == 0 and event.value in parent.keys:
                raise _error(f"duplicate key {event.value}", event)
            if parent.children % 2 == 0:
                parent.keys.add(event.value)
        parent.children += 1
        parent.values += values
        if parent.values > MAX_VALUES:
            raise _error(f"expands to more than {MAX_VALUES:,} values through aliases", event)


# --- values -------------------------------------------------------------------------------------


def check_values(config: Any) -> None:
    """Raise ConfigError for values that no setting can have, whatever the key."""
    if lines := list(_invalid_values(config, ())):
        raise ConfigError(lines)


def _invalid_values(value: Any, key: Key) -> Iterator[str]:
    """Yield a line for each invalid value, depth first; nothing below one that is too deep."""
    match value:
        case dict() | list() | tuple() if len(key) > MAX_DEPTH:
            yield _line(key, f"nested more than {MAX_DEPTH} levels deep")
        case dict() | list() | tuple():
            for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(value, dict) and (not isinstance(name, str) or CONTROL.search(name)):
                    message = "expected printable text as a key; put it into quotes"
                    yield _line((*key, name), message)
                else:
                    yield from _invalid_values(entry, (*key, name))
        case int() if abs(value) > MAX_NUMBER:
            yield _line(key, f"expected a number up to {MAX_NUMBER}, got {_shown(value)}")
        case str() if CONTROL.search(value):
            yield _line(key, f"expected no control characters, got {_shown(value)}")
        case str() | bool() | int() | float() | None:
            pass
        case _:
            yield _line(key, f"expected text or a number, got {_shown(value)}")


# --- mistakes that pydantic finds ---------------------------------------------------------------


def format_errors(error: ValidationError, given: Any) -> list[str]:
    """Return what is wrong with the given settings, one line for each key."""
    reasons: dict[str, list[str]] = {}
    for mistake in error.errors():
        key, reason = _reason(mistake, given)
        reasons.setdefault(key, []).append(reason)
    return [f"{key}: {' or: '.join(dict.fromkeys(of_key))}" for key, of_key in reasons.items()]


def _reason(mistake: Mapping[str, Any], given: Any) -> tuple[str, str]:
    """Return the key of a mistake, and what is wrong there."""
    keys = tuple(_given_keys(mistake["loc"], given, mistake["type"] == "missing"))
    message = mistake["msg"].removeprefix("Value error, ")
    value = mistake["input"]
    match mistake["type"]:
        case "extra_forbidden":
            return _key(keys), f"unknown key, given {_shown(value)}"
        case "missing":
            return _key(keys), "the key is missing"
        case "union_tag_not_found":
            return _key(keys), "the key `kind` is missing"
        case "union_tag_invalid":
            value = value.get("kind") if isinstance(value, Mapping) else value
            message = f"expected a section whose `kind` is one of {mistake['ctx']['expected_tags']}"
        case "inconsistent":
            of_section, _, message = message.partition(": ")
            return _key((*keys, of_section)), message
        case "value_error":
            return _key(keys), message
        case "model_type" | "model_attributes_type" | "dict_type":
            message = "expected a section of keys"
        case "string_pattern_mismatch" if mistake["ctx"]["pattern"] == NAME:
            message = "expected a name of letters, digits and _ that starts with a letter"
    return _key(keys), f"{message}, got {_shown(value)}"


def _given_keys(keys: Iterable[Any], given: Any, missing: bool) -> Iterator[Any]:
    """Yield the keys that lead to a mistake, without pydantic's names of alternatives.

    The last key need not exist if it is `missing`.
    """
    *above, last = keys or [None]
    for key in above:
        if _has(given, key):
            given = given[key]
            yield key
    if last is not None and (missing or _has(given, last)):
        yield last


def _has(given: Any, key: Any) -> bool:
    if isinstance(given, list | tuple):
        return isinstance(key, int) and key < len(given)
    return isinstance(given, Mapping) and key in given


def _line(key: Key, message: str) -> str:
    return f"{_key(key)}: {message}"


def _key(keys: Key) -> str:
    """Return keys joined with dots, none too long to read."""
    return ".".join(_cut(str(key)) for key in keys) or "the configuration"


def _shown(value: Any) -> str:
    """Return a value in a few characters."""
    match value:
        case None:
            return "null"
        case Mapping():
            return "a section"
        case list() | tuple():
            return "a list"
        case str():
            return repr(_cut(value))
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PART_LENGTH else text[:MAX_PART_LENGTH] + "..."
