"""Reading a file of settings, and telling what is wrong with it: a line a mistake, the key first.

Such a file is YAML or JSON that people write by hand, or get from others. What no setting can be
(a key given twice, aliases that stand for a billion values, a date, a control character) is told
before anything looks at it more closely, for libraries pass over it, or end in a traceback.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from scripts.anatomy.settings import NAME

DEEPEST = 30  # keys and lists inside each other; the schema has fewer than ten
MOST_VALUES = 1_000_000
LARGEST_FILE = 20_000_000  # bytes
LARGEST_NUMBER = 2**53  # from here on not every whole number is a float
MOST_LINES, LONGEST_LINE, LONGEST_PART = 40, 500, 120
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
MERGE = "tag:yaml.org,2002:merge"  # of <<, which stands for no value
# Keys that Snakemake takes for its own: with the first it runs what stands in the file
RESERVED = ("__use_yte__", "pathvars")
SECTION = "wants a section of keys"
KINDS = {dict: SECTION, list: "wants a list at its top level"}


class ConfigError(ValueError):
    """Mistakes in a configuration, told in one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        found = list(lines)
        if len(found) > MOST_LINES:
            found[MOST_LINES:] = [f"... and {len(found) - MOST_LINES} more mistakes"]
        super().__init__("\n".join(map(printable, found)))


def printable(text: str) -> str:
    """A text as one line for a terminal: control characters escaped, its end cut off if long."""
    safe = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text[: LONGEST_LINE + 1]
    )
    return safe if len(safe) <= LONGEST_LINE else safe[: LONGEST_LINE - 4] + " ..."


# --- files --------------------------------------------------------------------------------------


def read(path: Path, kind: type = dict) -> Any:
    """What stands in a file of settings, a mapping or a list.

    Raises:
        ConfigError: One line with the file and, where there is one, the line in it.
    """
    try:
        value = _parsed(_text(path))
    except _Unreadable as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise ConfigError([f"{place}: {error}"]) from None
    if not isinstance(value, kind):
        found = "there is nothing in it" if value is None else f"there is {_shown(value)}"
        raise ConfigError([f"{path}: {KINDS[kind]}; {found}"])
    for key in RESERVED:
        if kind is dict and key in value:
            raise ConfigError([f"{path}: {key}: there is no such key; to Snakemake it means more"])
    return value


class _Unreadable(ValueError):
    """A file that is no settings; `line` counts from 1."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise _Unreadable("is a folder")
        if not path.is_file():
            raise _Unreadable("is no file" if path.exists() else "there is no such file")
        if path.stat().st_size > LARGEST_FILE:
            raise _Unreadable(f"has more than {LARGEST_FILE // 10**6} MB, which no settings have")
        content = path.read_bytes()
    except OSError as error:
        raise _Unreadable(f"cannot be read ({error.strerror})") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Unreadable("is not UTF-8 text", line) from None


def _parsed(text: str) -> Any:
    """The value of a JSON or YAML text: JSON where it is both, as Snakemake reads it."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError:
        raise _Unreadable(f"is more than {DEEPEST} levels deep") from None
    except _Unreadable:
        raise
    except ValueError:
        pass  # then it is YAML
    loader = LOADER(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _weigh(node, loader, {})
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        reason = " ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        if "cannot start any token" in reason and "\t" in text:
            reason += "; indent with spaces, not with tabs"
        raise _Unreadable(f"is not YAML: {reason}", mark and mark.line + 1) from None
    except yaml.YAMLError as error:
        raise _Unreadable(f"is not YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise _Unreadable(f"the key {twin} is given twice")
    return found


def _check_depth(text: str) -> None:
    """Raise for a file that is too deep for what comes next, which calls itself for each level."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise _Unreadable(f"is more than {DEEPEST} levels deep", event.start_mark.line + 1)


def _weigh(node: yaml.Node, loader: Any, known: dict[yaml.Node, tuple[int, int] | None]) -> Any:
    """How many values a node stands for, and how deep it is, all aliases written out.

    Raises for what YAML allows and no settings have: a key twice (the last would be taken), a node
    inside itself, aliases of aliases of aliases, a number or a date that is none.
    """
    if node in known:
        if known[node] is None:
            raise _Unreadable("holds itself, by an alias", node.start_mark.line + 1)
        return known[node]
    line = node.start_mark.line + 1
    known[node] = None
    match node:
        case yaml.MappingNode():
            _check_twins(node)
            children = [child for pair in node.value for child in pair]
        case yaml.SequenceNode():
            children = node.value
        case _ if node.tag == MERGE:
            children = []
        case _:
            children = []
            try:
                loader.construct_object(node)
            except yaml.YAMLError:
                raise
            except Exception:  # each type has its own; all of them are about this text
                kind = node.tag.rpartition(":")[2]
                reason = f"{_cut(node.value)!r} is no {kind} that can be read"
                raise _Unreadable(reason, line) from None
    parts = [_weigh(child, loader, known) for child in children]
    values = 1 + sum(part[0] for part in parts)
    depth = 1 + max((part[1] for part in parts), default=0)
    if values > MOST_VALUES or depth > DEEPEST:
        raise _Unreadable("stands for too much, by aliases of aliases", line)
    known[node] = values, depth
    return known[node]


def _check_twins(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                raise _Unreadable(f"the key {key.value} is given twice", key.start_mark.line + 1)
            seen.add((key.tag, key.value))


# --- values -------------------------------------------------------------------------------------


def check_plain(config: Any) -> None:
    """Raise ConfigError for values that no setting can have, whatever the key."""
    if found := list(_strange(config, (), (), count(1))):
        raise ConfigError(found)


def _strange(
    value: Any, place: tuple[Any, ...], above: tuple[int, ...], number: Iterator[int]
) -> Iterator[str]:
    """The mistakes in a value, depth first; nothing below one that is too deep."""
    if next(number) > MOST_VALUES:
        raise ConfigError([_line(place, "stands for too much, by aliases of aliases")])
    match value:
        case dict() | list() | tuple():
            if id(value) in above:
                yield _line(place, "holds itself, by an alias")
                return
            if len(place) > DEEPEST:
                yield _line(place, f"is more than {DEEPEST} levels deep")
                return
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            for key, entry in entries:
                if isinstance(value, dict):
                    yield from _strange_key(key, place)
                yield from _strange(entry, (*place, key), (*above, id(value)), number)
        case bool() | float() | None:
            pass
        case int():
            if abs(value) > LARGEST_NUMBER:
                yield _line(place, f"a number beyond {LARGEST_NUMBER}")
        case str():
            if CONTROL.search(value):
                yield _line(place, f"holds a control character (given: {_shown(value)})")
        case _:
            yield _line(place, f"wants text or a number (given: {_shown(value)})")


def _strange_key(key: Any, place: tuple[Any, ...]) -> Iterator[str]:
    if not isinstance(key, str):
        reason = f"YAML reads this key as {_shown(key)}, and keys are text; put it into quotes"
        yield _line((*place, key), reason)
    elif CONTROL.search(key):
        yield _line((*place, key), "the key holds a control character")


# --- mistakes that pydantic finds ---------------------------------------------------------------


def told(error: ValidationError, given: Any) -> list[str]:
    """What is wrong with the given settings, a line a key."""
    reasons: dict[str, list[str]] = {}
    for mistake in error.errors():
        key, reason = _reason(mistake, given)
        reasons.setdefault(key, []).append(reason)
    return [f"{key}: {' or: '.join(dict.fromkeys(of_key))}" for key, of_key in reasons.items()]


def _reason(mistake: Mapping[str, Any], given: Any) -> tuple[str, str]:
    """The key of a mistake, and what is wrong there."""
    place = tuple(_real(mistake["loc"], given, mistake["type"] == "missing"))
    key = _key(place)
    message = mistake["msg"].removeprefix("Value error, ")
    value = mistake["input"]
    match mistake["type"]:
        case "extra_forbidden":
            return key, "there is no such key"
        case "missing":
            return key, "the key is missing"
        case "union_tag_not_found":
            return key, "the key `kind` is missing"
        case "union_tag_invalid":
            value = value.get("kind") if isinstance(value, Mapping) else value
            kinds = mistake["ctx"]["expected_tags"]
            message = f"wants a section whose `kind` is one of {kinds}"
        case "inconsistent":
            of_section, _, message = message.partition(": ")
            return _key((*place, of_section)), message
        case "value_error":
            return key, message
        case "model_type" | "model_attributes_type" | "dict_type":
            message = SECTION
        case "string_pattern_mismatch" if mistake["ctx"]["pattern"] == NAME:
            message = "a name is letters, digits and _, and starts with a letter"
    return key, f"{message} (given: {_shown(value)})"


def _real(place: Iterable[Any], given: Any, missing: bool) -> Iterator[Any]:
    """The keys of the file on the way to a mistake, without what pydantic calls the alternatives.

    The last one need not be there if it is `missing`.
    """
    *way, last = place or [None]
    for part in way:
        inside = _inside(given, part)
        if inside:
            given = inside[0]
            yield part
    if last is not None and (missing or _inside(given, last)):
        yield last


def _inside(given: Any, part: Any) -> list[Any]:
    """What is under a key or at a place of a list, if there is such a one."""
    if isinstance(given, Mapping):
        return [given[part]] if part in given else []
    at = isinstance(given, list | tuple) and isinstance(part, int) and part < len(given)
    return [given[part]] if at else []


def _line(place: Iterable[Any], message: str) -> str:
    return f"{_key(place)}: {message}"


def _key(place: Iterable[Any]) -> str:
    """A place with dots, no part of it too long to read."""
    return ".".join(_cut(str(part)) for part in place) or "the configuration"


def _shown(value: Any) -> str:
    """A value in a few characters."""
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
    return text if len(text) <= LONGEST_PART else text[:LONGEST_PART] + "..."
