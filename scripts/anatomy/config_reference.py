"""The schema and the reference page of the configuration, both from its pydantic models.

Every mapping from names to entries also takes null, which removes an entry, and `like`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

TITLE = """# Configuration

Every key of `config.yaml`, generated from the settings classes by
`python -m scripts.anatomy.configuration`. Lay a file with the keys that you change over
`config.yaml`: `snakemake --cores 4 --configfile mine.yaml`. The same command checks your file:
`python -m scripts.anatomy.configuration mine.yaml`. Unknown keys are errors.

`<name>` is a name that you choose: letters, digits and `_`, a letter first. In every section of
such names, null in place of an entry removes it, and `like: other` copies the entry `other`; the
keys beside `like` replace those that are copied.
"""
LIMITS = {
    "minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}",
    "minItems": "at least {}",
}  # fmt: skip


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of the configuration."""
    whole = model.model_json_schema()
    definitions = whole["$defs"]
    for section in [whole, *definitions.values()]:
        for part in section["properties"].values():
            for values, name in [(entries, key) for entries in _mappings(part) for key in entries]:
                _add_like(definitions, values[name])
                values[name] = {"anyOf": [values[name], {"type": "null"}]}
    return whole


def _mappings(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of a mapping's entries by the patterns of their names."""
    if "patternProperties" in part:
        yield part["patternProperties"]
    elif isinstance(part.get("additionalProperties"), dict):
        yield {"": part["additionalProperties"]}


def _add_like(definitions: dict[str, Any], entry: dict[str, Any]) -> None:
    """Allow `like` in the sections that an entry can be; with it no other key is required."""
    for alternative in entry.get("oneOf", [entry]):
        section = definitions.get(alternative.get("$ref", "").rpartition("/")[2])
        if section and "like" not in section["properties"]:
            section["properties"]["like"] = {
                "type": "string",
                "description": "The entry that this one is like, but for the keys given here.",
            }
            if required := section.pop("required", None):
                section["anyOf"] = [{"required": required}, {"required": ["like"]}]


# --- the page -----------------------------------------------------------------------------------


def reference(model: type[BaseModel]) -> str:
    """Return the reference page: a table of keys for every section, as Markdown."""
    whole = model.model_json_schema()
    sections: dict[str, list[str]] = {}
    _collect(whole, "", whole["$defs"], sections)
    titles = {name: _title(name, paths, whole["$defs"]) for name, paths in sections.items()}
    tables = [_table(whole, "Top level", titles)]
    tables += [_table(whole["$defs"][name], title, titles) for name, title in titles.items()]
    return "\n".join([TITLE, *tables])


def _collect(
    section: dict[str, Any], path: str, definitions: dict[str, Any], sections: dict[str, list[str]]
) -> None:
    """Add the paths at which every class of settings is, depth first."""
    for key, part in section["properties"].items():
        for name, below in _sections_in(part, f"{path}.{key}" if path else key):
            paths = sections.setdefault(name, [])
            if below not in paths:
                paths.append(below)
                _collect(definitions[name], below, definitions, sections)


def _sections_in(part: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the classes that a value can be, with their paths."""
    if "$ref" in part:
        yield part["$ref"].rpartition("/")[2], path
    for alternative in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from _sections_in(alternative, path)
    for entry in part.get("patternProperties", {}).values():
        yield from _sections_in(entry, f"{path}.<name>")
    if isinstance(entry := part.get("items"), dict):
        yield from _sections_in(entry, path)


def _title(name: str, paths: list[str], definitions: dict[str, Any]) -> str:
    kind = definitions[name]["properties"].get("kind", {}).get("const")
    return ", ".join(f"`{path}`" for path in paths) + (f" of kind {kind}" if kind else "")


def _table(section: dict[str, Any], title: str, titles: dict[str, str]) -> str:
    """Return a heading, what the section is, and a row for every key."""
    rows = [
        f"| `{key}` | {_type(part, titles)} | {_default(key, part, section)} | "
        f"{_cell(part.get('description', ''))} |"
        for key, part in section["properties"].items()
    ]
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    about = " ".join(section.get("description", "").split("\n\nAttributes:")[0].split())
    return "\n".join([f"## {title}", "", about, "", *head, *rows, ""])


def _type(part: dict[str, Any], titles: dict[str, str]) -> str:
    """Return what a key takes, in a few words."""
    limits = [text.format(part[name]) for name, text in LIMITS.items() if name in part]
    if "$ref" in part:
        title = titles[part["$ref"].rpartition("/")[2]]
        kind = title.partition(" of kind ")[2]
        return f"[{f'section of kind {kind}' if kind else 'section'}](#{_anchor(title)})"
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if alternatives := part.get("anyOf", part.get("oneOf")):
        return " or ".join(dict.fromkeys(_type(one, titles) for one in alternatives))
    for entries in _mappings(part):
        return "names: " + " or ".join(_type(entry, titles) for entry in entries.values())
    if part.get("type") == "array":
        entry = part.get("items") or {"anyOf": part["prefixItems"]}
        limits = [f"{limit} entries" for limit in limits]
        return ", ".join([f"list of {_type(entry, titles)}", *limits])
    return ", ".join([part.get("format", part["type"]), *limits])


def _default(key: str, part: dict[str, Any], section: dict[str, Any]) -> str:
    if "default" not in part:
        return "required" if key in section.get("required", ()) else ""
    default = part["default"]
    if isinstance(default, dict) and default:
        return ""  # that of every key, in the table of the section
    return f"`{_cell(json.dumps(default))}`"


def _cell(text: str) -> str:
    """Return text for a table's cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
