"""Generated configurations are valid, or refused in lines that name the key.

Some have a wrong value at a key of the schema, some are mutations of this project's configurations,
and some are files that are not settings.
"""

import copy
import datetime
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from checkouts import ROOT, SNAKEMAKE, Checkout, called, copied, merged, tiny
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from scripts.anatomy import claims, config_loading, configuration
from scripts.anatomy.config_loading import MAX_LINE_LENGTH, MAX_LINES
from scripts.anatomy.configuration import ConfigError, validate

Place = tuple[str | int, ...]

DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text("utf-8"))
MINIMAL = {
    "models": {"minilm": {"kind": "packaged", "package": "minilm"}},
    "topic": {"corpora": {"lda": {"kind": "lda"}}, "variants": {"one": {}}},
    "text": {"corpora": {"wikipedia": {"kind": "packaged"}}, "models": ["minilm"]},
    "embedding": {"models": ["minilm"], "readings": {"plain": {}}},
    "lego": {"tasks": {}, "variants": {}},
    "pretraining": {
        "corpus": "wikipedia",
        "model": {"n_heads": 4},
        "variants": {"base": {}},
    },
}
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DEEP = json.loads("[" * 200 + "]" * 200)
GARBAGE = [
    *(None, True, -1, 0, 1.5, 2**53 + 1, 10**400, -(10**30), 1e308, math.nan, math.inf),
    *("", "nonesuch", "a\nb", "\x1b[2J", "\u202eabc", "x" * 5000, "../..", "{x}", "\ud800", "a\0b"),
    *([], [[]], [None], ENDLESS, DEEP, [1, 1], ["a", "a"], {}, {"nonesuch": 1}, {1: 2}, {None: 1}),
    *({True: 1}, datetime.date(2001, 1, 1), {"a", "b"}, b"x", (1, 2), object(), 1j),
]


def refused(config: Any) -> list[str]:
    """Return the lines of the error about a configuration, none if it is valid."""
    before, started = repr(config), time.process_time()
    try:
        validate(config)
        lines = []
    except ConfigError as error:
        assert error.__context__ is None or error.__suppress_context__  # no traceback of a library
        lines = str(error).split("\n")
    assert time.process_time() - started < 2
    assert repr(config) == before
    for line in lines[:MAX_LINES]:
        assert line.isprintable() and len(line) <= MAX_LINE_LENGTH, line
        key, colon, message = line.partition(": ")
        assert colon and key and message, line
    return lines


# --- from the schema ----------------------------------------------------------------------------

SCHEMA = configuration.Config.model_json_schema()


class Key(NamedTuple):
    """A key of the schema, with a function that returns a configuration with a value there."""

    place: Place
    name: str  # of the section and the key, as the schema has them
    having: Callable[[Any], dict[str, Any]]


def keys(
    part: dict[str, Any], place: Place, having: Callable[[Any], Any], section: str = "Config"
) -> Iterator[Key]:
    """Yield all keys below a part of the schema, in all alternatives."""
    for one in part.get("anyOf", part.get("oneOf", [part])):
        if "$ref" in one or "anyOf" in one or "oneOf" in one:
            reference = one.get("$ref", "").rpartition("/")[2]
            yield from keys(SCHEMA["$defs"].get(reference, one), place, having, reference)
            continue
        inside = one.get("properties", {})
        kind = {"kind": inside["kind"]["const"]} if "const" in inside.get("kind", {}) else {}
        for key, below in inside.items():
            inner = _wrapping(having, lambda value, key=key, kind=kind: {**kind, key: value})
            yield Key((*place, key), f"{section}.{key}", inner)
            yield from keys(below, (*place, key), inner)
        named = [*one.get("patternProperties", {}).values(), one.get("additionalProperties")]
        if isinstance(below := named[0], dict):
            name = one.get("propertyNames", {}).get("enum", ["mine"])[0]
            inner = _wrapping(having, lambda value, name=name: {name: value})
            yield from keys(below, (*place, name), inner)
        if isinstance(below := one.get("items"), dict):
            yield from keys(below, (*place, 0), _wrapping(having, lambda value: [value]))


def _wrapping(
    outer: Callable[[Any], Any], inner: Callable[[Any], Any]
) -> Callable[[Any], dict[str, Any]]:
    return lambda value: outer(inner(value))


KEYS = list(keys(SCHEMA, (), lambda value: value))


def test_every_key_of_the_schema_is_reached() -> None:
    """The generator yields all keys of all sections."""
    sections = {"Config": SCHEMA, **SCHEMA["$defs"]}
    assert {key.name for key in KEYS} == {
        f"{name}.{key}" for name, section in sections.items() for key in section["properties"]
    }
    assert refused(MINIMAL) == []


@pytest.mark.parametrize("study", [*MINIMAL, "the rest"])
def test_a_wrong_value_at_any_key_is_reported_with_the_key(study: str) -> None:
    here = [
        key for key in KEYS if (key.place[0] if key.place[0] in MINIMAL else "the rest") == study
    ]
    assert here
    for key in here:
        exact = False
        for value in GARBAGE:
            lines = refused(merged(MINIMAL, key.having(value)))
            about = [line for line in lines if not line.endswith(": the key is missing")]
            assert all(is_about(line, [key.place]) for line in about), (key.place, value, lines)
            exact |= any(line.startswith(".".join(map(str, key.place)) + ": ") for line in lines)
        assert exact or key.place[-1] == "kind", key.place  # a wrong kind is told of the section


@pytest.mark.parametrize("extra", ["nonesuch", "a.b", "", " ", "a\nb", "\x1b[31m", "x" * 1000])
def test_an_unknown_key_in_any_section_is_refused(extra: str) -> None:
    sections = {key.place[:-1]: key for key in KEYS}
    for place, key in sections.items():
        config = merged(MINIMAL, key.having(1))
        section = config
        for part in place:
            section = section[part]
        section[extra] = 1
        lines = refused(config)
        start = ".".join([*map(str, place), config_loading.printable(extra[:100])])
        assert any(line.startswith(start) for line in lines), (start, lines)


# --- by mutation --------------------------------------------------------------------------------


def configurations() -> dict[str, Any]:
    """Return the configurations of this project, merged as Snakemake merges them."""
    found = {"config.yaml": DEFAULT}
    for name in ("smoke", "paper"):
        overlay = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text("utf-8"))
        found[name] = merged(DEFAULT, overlay)
    overlay = yaml.safe_load((ROOT / "config/multiberts.yaml").read_text("utf-8"))
    found["multiberts"] = merged(found["paper"], overlay)
    found["tiny"] = merged(DEFAULT, tiny())
    return found


CONFIGURATIONS = configurations()


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Yield the paths of all values in a configuration, parents first."""
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*above, key)
            yield from places(entry, (*above, key))


PLACES = {name: list(places(config)) for name, config in CONFIGURATIONS.items()}
nonsense = st.recursive(
    st.sampled_from(GARBAGE) | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
odd_keys = st.text(max_size=10) | st.sampled_from(
    ["kind", "seed0", "x" * 300, "a\nb", "<<", 1, 1.5, True, None, datetime.date(2001, 1, 1), (1,)]
)


def mutated(config: Any, place: Place, change: Callable[[Any, str | int], None]) -> Any:
    """Return a copy with a change at one path; it shares the rest with the original."""
    result = section = copy.copy(config)
    for part in place[:-1]:
        section[part] = copy.copy(section[part])
        section = section[part]
    change(section, place[-1])
    return result


def put(value: Any) -> Callable[[Any, str | int], None]:
    """Return a change that replaces a value."""
    return lambda section, key: section.__setitem__(key, value)


class Mutant(NamedTuple):
    """A configuration with one mutation, and the paths that it touches."""

    config: Any
    touched: list[Place]

    def __repr__(self) -> str:
        """Return the touched paths with their values."""
        return f"Mutant({[(place, _found(self.config, place)) for place in self.touched]})"


def _found(config: Any, place: Place) -> Any:
    try:
        return at(config, place)
    except LookupError:
        return "nothing"


@st.composite
def mutants(draw: st.DrawFn, names: tuple[str, ...]) -> Mutant:
    """Draw one of the configurations and mutate it once."""
    name = draw(st.sampled_from(names))
    config, there = CONFIGURATIONS[name], PLACES[name]
    place, other = draw(st.sampled_from(there)), draw(st.sampled_from(there))
    value = at(config, place)
    kinds = ["delete", "rename", "put", "put", "swap", "twice", "nest", "add"]
    match draw(st.sampled_from(kinds)):
        case "delete":
            return Mutant(mutated(config, place, drop), [place])
        case "rename" if isinstance(at(config, place[:-1]), dict):
            new = (*place[:-1], draw(odd_keys))
            return Mutant(mutated(mutated(config, place, drop), new, put(value)), [place, new])
        case "swap" if place != other[: len(place)] and other != place[: len(other)]:
            swapped = mutated(mutated(config, place, put(at(config, other))), other, put(value))
            return Mutant(swapped, [place, other])
        case "twice" if isinstance(value, list) and value:
            return Mutant(mutated(config, place, put([*value, value[0]])), [place])
        case "nest":
            around = draw(st.sampled_from([[value], {"a": value}, {place[-1]: value}]))
            return Mutant(mutated(config, place, put(around)), [place])
        case "add" if isinstance(value, dict):
            new = (*place, draw(odd_keys))
            return Mutant(mutated(config, new, put(draw(nonsense))), [new])
    return Mutant(mutated(config, place, put(draw(nonsense))), [place])


def drop(section: Any, key: str | int) -> None:
    """Remove a key."""
    del section[key]


def at(config: Any, place: Place) -> Any:
    """Return the value at a path."""
    for part in place:
        config = config[part]
    return config


def is_about(line: str, touched: list[Place]) -> bool:
    """Return whether a line names a touched path, a parent or child of it, or a part of it."""
    key, _, _ = line.partition(": ")
    for place in touched:
        shown = [config_loading.printable(str(part)[:100]) for part in place]
        if ".".join(shown).startswith(key) or key.startswith(".".join(shown[:2])):
            return True
        if any(part in line for part in shown if part):
            return True
    return False


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutants(tuple(CONFIGURATIONS)))
def test_a_mutant_is_valid_or_refused_with_its_key(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, mutant: Mutant
) -> None:
    monkeypatch.chdir(inputs.parent)
    lines = refused(mutant.config)
    assert not lines or any(is_about(line, mutant.touched) for line in lines), lines


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_configurations_are_valid_before_mutation(
    name: str, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs.parent)
    assert refused(CONFIGURATIONS[name]) == []


@pytest.mark.parametrize("config", [None, 5, "x", [], [DEFAULT], ENDLESS, b"", datetime.date.max])
def test_a_configuration_that_is_not_a_mapping_is_refused(config: Any) -> None:
    assert refused(config)


def test_the_number_of_reported_mistakes_is_limited() -> None:
    lines = refused(merged(DEFAULT, {f"wrong{n}": 1 for n in range(1000)}))
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == f"... and {1000 - MAX_LINES} more mistakes"


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "1a",
            "_a",
            "a b",
            "a/b",
            "..",
            "a.b",
            "a|b",
            "a{b}",
            "(a)",
            "a*",
            "a\n",
            "é",
            "x" * 101,
        ),
        *("a,b", "a-b", "ab" * 20, "a\\b", "$a", "[a]", "^a", "a?", "a+"),
    ],
)
def test_a_name_that_means_something_to_paths_or_rules_is_refused(name: str) -> None:
    """Wildcards are constrained by regular expressions that are made of names."""
    lines = refused(merged(MINIMAL, {"topic": {"variants": {name: {}}}}))
    assert len(lines) == 1 and lines[0].startswith("topic.variants.")


@pytest.mark.parametrize("place", [("words",), ("path",)])
def test_a_path_with_braces_is_refused(
    place: Place, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake reads braces in a path as a wildcard."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{x}.txt").write_text("word")
    shutil.copytree(inputs / "encoder", tmp_path / "{model}")
    config = merged(
        MINIMAL,
        {"embedding": {"pairs": {"words": "{x}.txt"}}}
        if place == ("words",)
        else {"models": {"mine": {"kind": "folder", "path": "{model}"}}},
    )
    (line,) = refused(config)
    assert "{" in line and "wildcard" in line


@pytest.mark.parametrize("length", [300, 5000])
def test_a_path_that_is_too_long_is_refused(length: int) -> None:
    (line,) = refused(merged(MINIMAL, {"embedding": {"pairs": {"words": "x" * length}}}))
    assert line.startswith("embedding.pairs.words: no such file: xxx")


# --- files --------------------------------------------------------------------------------------

BOMB = "a: &a [x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, here in zip("abcdefgh", "bcdefghi", strict=False)
)
FILES = {
    # a file's content, and what the message has: the line, the key or value
    "syntax": ("topic: {seeds: [0, 1\n", (":2: ", "flow sequence")),
    "a tab": ("topic:\n\tseeds: [0]\n", (":2: ",)),
    "a list": ("- 1\n", ("a list",)),
    "a word": ("hello\n", ("'hello'",)),
    "nothing": ("", ("null",)),
    "comments": ("# scale: smoke\n", ("null",)),
    "two documents": ("a: 1\n---\nb: 2\n", (":2: ", "document")),
    "a duplicate key": ("topic: {}\nscale: smoke\ntopic: {}\n", (":3: ", "key topic")),
    "a duplicate key inside": ("a:\n  b: {c: 1,\n    c: 2}\n", (":3: ", "key c")),
    "a duplicate key in JSON": ('{"a": 1, "a": 2}', ("key a",)),
    "JSON cut off": ('{"scale": ', (":2: ",)),
    "an alias bomb": (BOMB, ("aliases",)),
    "itself": ("a: &a {b: *a}\n", (":1: ", "alias a")),
    "itself in a list": ("a: [&a [*a]]\n", (":1: ", "alias a")),
    "no anchor": ("a: *b\n", (":1: ", "alias")),
    "deep": ("a: " + "[" * 100_000, ()),
    "deep, closed": ("a: " + "{a: " * 500 + "1" + "}" * 500, (":1: ", "30 levels")),
    "deep, indented": ("\n".join(" " * n + "a:" for n in range(500)), (":31: ", "30 levels")),
    "deep JSON": ('{"a": ' * 100_000, ("30 levels",)),
    "a number without end": (f"a: {'9' * 5000}\n", (":1: ", "'999")),
    "no date": ("a: 2001-99-99\n", (":1: ", "'2001-99-99'")),
    "not UTF-8": (b"a: b\nscale: sm\xff\xfeoke\n", ("line 2", "UTF-8")),
    "UTF-16": ("scale: smoke\n".encode("utf-16"), ("line 1", "UTF-8")),
    "a NUL": ("sca\0le: smoke\n", ("#x0000",)),
    "binary": (bytes(range(256)) * 40, ("UTF-8",)),
    "a section for a key": ("? {a: 1}\n: 2\n", (":1: ", "unhashable key")),
    "merged nonsense": ("a:\n  <<: 5\n", (":2: ", "mapping")),
    "a Python object": ("a: !!python/object/apply:os.getcwd []\n", (":1: ", "os.getcwd")),
    "a template": ('__use_yte__: true\na: ?open("run", "w")\n', ("__use_yte__",)),
    "pathvars": ("pathvars: 5\n", ("pathvars",)),
}


def error_of(load: Callable[[Path], Any], path: Path) -> str:
    """Return the message about a file that cannot be read: one line that begins with its name."""
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert time.process_time() - started < 2
    (line,) = str(caught.value).split("\n")
    assert line.startswith(f"{path}:"[:100]) and line.isprintable()
    assert len(line) <= MAX_LINE_LENGTH
    return line


@pytest.mark.parametrize("load", [config_loading.read, claims.load])
@pytest.mark.parametrize(("content", "parts"), FILES.values(), ids=FILES)
def test_a_file_that_is_not_settings_is_refused_in_one_line(
    content: str | bytes,
    parts: tuple[str, ...],
    load: Callable[[Path], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message has the file, the line and the key or value; nothing in the file is run."""
    monkeypatch.chdir(tmp_path)
    path = Path("mine.yaml")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    line = error_of(load, path)
    assert all(part in line for part in parts), line
    assert not Path("run").exists()


def test_a_path_that_is_not_a_readable_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """A missing file, a folder, a device, a circular link and a file that is too large."""
    (tmp_path / "link.yaml").symlink_to("link.yaml")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(config_loading.MAX_FILE_SIZE + 1)
    for path, part in [
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "folder"),
        (Path("/dev/zero"), "device"),
        (tmp_path / "link.yaml", ""),
        (tmp_path / "large.yaml", "20 MB"),
    ]:
        assert part in error_of(config_loading.read, path)


@pytest.mark.parametrize(
    "text",
    ["scale: smoke\n", '{"scale": "smoke"}', '{\n\t"scale": "smoke"\n}', "\ufeffscale: smoke\n"],
    ids=["YAML", "JSON", "JSON with tabs", "YAML of Windows"],
)
def test_a_file_is_read_as_snakemake_reads_it(text: str, tmp_path: Path) -> None:
    """JSON, tabs in JSON and a byte order mark are accepted."""
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert config_loading.read(tmp_path / "mine.yaml") == {"scale": "smoke"}


@pytest.mark.parametrize("path", ["config.yaml", "config/smoke.yaml", "config/paper.yaml"])
def test_our_own_files_are_read_whole(path: str) -> None:
    """Anchors and merge keys are resolved, and are not duplicate keys."""
    assert config_loading.read(ROOT / path) == yaml.safe_load((ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"studdy": "x"}, "topic.other.studdy: "),
        ({"expect": {"above": "x\x1b"}}, "topic.1.expect.above: "),
        ({"expect": {"near": 1}}, "topic.other.expect: "),
        ({"artifacts": []}, "topic.other.artifacts: "),
        ({"artifacts": [None]}, "topic.other.artifacts.0: "),
        ({"scale": datetime.date(2001, 1, 1)}, "topic.1.scale: "),
        ({"id": "mine"}, "mine: the id is given twice"),
        ({"claims": [None]}, "topic.1.0: expected a claim or a group, got None"),
        ({"claims": 3}, "topic.1.claims: expected a list, got 3"),
        ({"claims": [{"metric": 3}]}, "topic.other.metric: "),
    ],
)
def test_a_mistake_in_a_claim_names_study_claim_and_key(
    change: dict[str, Any], line: str, tmp_path: Path
) -> None:
    path = tmp_path / "claims.yaml"
    good = {
        "id": "mine", "statement": "So it is.", "source": "a paper", "scale": "smoke",
        "artifacts": ["a.json"], "metric": "value", "expect": {"above": 0},
    }  # fmt: skip
    path.write_text(yaml.safe_dump({"topic": [good, good | {"id": "other"} | change]}))
    with pytest.raises(ValueError) as caught:
        claims.load(path)
    assert str(caught.value).startswith(f"{path}: {line}")


def test_names_of_artifacts_with_braces_are_no_template(tmp_path: Path) -> None:
    """Only {seed} is replaced."""
    claim = claims.load(ROOT / "claims.yaml")[0].model_copy(
        update={"artifacts": ["results/{x}/{seed}.json", "{seed.__class__}", "{0}"]}
    )
    assert claim.paths([3]) == ["results/{x}/3.json", "{seed.__class__}", "{0}"]


# --- by the command -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, inputs: Path) -> Checkout:
    """Return a copy of the project with the tiny configuration as config.yaml."""
    source = copied(ROOT, tmp_path_factory.mktemp("project") / "copy")
    made = Checkout(source, inputs=inputs)
    made.overlay.unlink()
    configure(made, CONFIGURATIONS["tiny"])
    return made


def configure(project: Checkout, config: Any) -> None:
    """Write the whole configuration."""
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (project.source / "config.yaml").write_text(text, encoding="utf-8")


def printed(project: Checkout, *arguments: str | Path) -> list[str]:
    """Return what a dry run prints, except for its standing lines.

    It shows jobs or exits with 1, without a traceback, and makes no files.
    """
    command = [SNAKEMAKE, "-n", "--cores", "1", *arguments]
    done = subprocess.run(
        command, cwd=project.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=120,
    )  # fmt: skip
    text = done.stdout
    assert done.returncode == (0 if "Job stats:" in text else 1), text
    assert "Traceback" not in text, text
    assert not {"results", "logs"} & {path.name for path in project.directory.iterdir()}
    standing = ("Using workflow specific profile", "Config file ")
    return [line for line in text.splitlines() if not line.startswith(standing)]


@pytest.mark.parametrize(
    ("overlay", "line"),
    [
        ("topic: null\n", "topic: expected a section of keys, got null"),
        ("topic: {}\nscale: smoke\ntopic: {}\n", "{overlay}:3: invalid YAML: duplicate key topic"),
    ],
    ids=["null", "a key twice"],
)
def test_a_bad_overlay_is_one_line(project: Checkout, overlay: str, line: str) -> None:
    path = project.directory / "bad.yaml"
    path.write_text(overlay, encoding="utf-8")
    (told,) = printed(project, "--configfile", path)
    assert told.startswith(line.format(overlay=path))


def test_a_bad_option_is_one_line(project: Checkout) -> None:
    assert printed(project, "--config", "topics=5") == ["topics: unknown key, given 5"]


def test_a_broken_config_yaml_is_one_line(project: Checkout) -> None:
    path = project.source / "config.yaml"
    whole = path.read_bytes()
    try:
        path.write_bytes(whole + b"\nscale: sm\xff\n")
        (line,) = printed(project)
    finally:
        path.write_bytes(whole)
    assert line == f"{path}: line {whole.count(10) + 2}: expected UTF-8 text"


def test_a_broken_claims_yaml_is_one_line(project: Checkout) -> None:
    """The claims are read before any job starts."""
    path = project.source / "claims.yaml"
    whole = path.read_text("utf-8")
    try:
        path.write_text(whole + "- [", encoding="utf-8")
        (line,) = printed(project)
    finally:
        path.write_text(whole, encoding="utf-8")
    assert line.startswith(f"{path}:") and "invalid YAML" in line


def test_words_that_mean_something_to_snakemake_mean_nothing(project: Checkout) -> None:
    """Tokens with braces and other special characters are not wildcards."""
    odd = ["{", "}", "{x}", "{{y}}", "{wildcards.model}", "%s", "$HOME", '"', "'", "\\", "*", "a b"]
    overlay = {
        "embedding": {
            "pairs": {"rows": odd},
            "golden": {"mine": {"matrix": "VO", "model": "decoder", "layer": 0, "head": 0,
                                "pairs": [["{a}", "{b}"]]}},
        },
        "lego": {"variants": {"pretrained": {"pretrained": {"words": {"=": "{is}", ",": "{x"}}}}},
    }  # fmt: skip
    path = project.directory / "odd.yaml"
    path.write_text(yaml.safe_dump(overlay), encoding="utf-8")
    assert "Job stats:" in printed(project, "--configfile", path)


def test_make_looks_at_a_file_before_snakemake_does(tmp_path: Path) -> None:
    """For invalid YAML, Snakemake prints a traceback."""
    commands = called(["make", "-n", "run", "CONFIGFILE=mine.yaml"], ROOT).splitlines()
    order = [line for line in commands if "mine.yaml" in line]
    assert order[0].endswith('python -m scripts.anatomy.configuration "mine.yaml"')
    assert "snakemake" in order[1]
    (tmp_path / "bad.yaml").write_text("topic: [\n", encoding="utf-8")
    checking = [sys.executable, "-m", "scripts.anatomy.configuration"]
    line = called([*checking, ROOT / "config.yaml", tmp_path / "bad.yaml"], ROOT, status=1)
    assert line.startswith(f"{tmp_path / 'bad.yaml'}:2: invalid YAML: ") and line.count("\n") == 1
    assert called([*checking, ROOT / "config.yaml"], ROOT) == ""


def test_a_script_by_hand_looks_at_its_file_too(project: Checkout) -> None:
    path = project.directory / "bad.yaml"
    path.write_text("topic: [\n", encoding="utf-8")
    command = [sys.executable, "-m", "scripts.topic.theory", "results/topic/theory.json"]
    line = called([*command, "--configfile", path], project.source, status=1)
    assert line.startswith(f"{path}:2: invalid YAML: ") and line.count("\n") == 1


@pytest.mark.slow
@settings(max_examples=40, phases=[Phase.generate])
@given(mutant=mutants(("tiny",)))
def test_a_mutant_has_a_plan_or_is_refused(project: Checkout, mutant: Mutant) -> None:
    try:
        configure(project, mutant.config)
    except yaml.YAMLError:
        reject()  # nothing that stands in a file
    lines = printed(project)
    if "Job stats:" not in lines:
        of_file = f"{project.source / 'config.yaml'}:"
        assert len(lines) <= MAX_LINES + 1
        assert all(line.isprintable() and len(line) <= MAX_LINE_LENGTH for line in lines), lines
        assert any(is_about(line, mutant.touched) or line.startswith(of_file) for line in lines)


WORDS = ["NONE", "seed", "tuning", "model", "weights", "heads", "grid", "sweep", "topic", "all"]
WORDS += [
    "null",
    "None",
    "run",
    "results",
    "logs",
    "claims",
    "x" * 19,
    "ab" * 19 + "c",
    "z" + "a1" * 9,
]
FOLDERS = ["figures", "data", "tokenizer", "comparisons", "alignment", "finetuning", "labelled"]


@pytest.mark.slow
def test_names_of_folders_and_rules_may_be_names_of_entries(
    project: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two rules make the same file, whatever the entries are called."""
    monkeypatch.chdir(project.directory)
    config = copy.deepcopy(CONFIGURATIONS["tiny"])
    sections = {
        ("topic", "variants"): "value_squared", ("topic", "corpora"): "lda",
        ("text", "corpora"): "stories", ("embedding", "readings"): "plain",
        ("embedding", "alignment", "pairs"): "twins",
        ("embedding", "finetuning", "labelled"): "opinions",
        ("embedding", "finetuning", "runs"): "mine", ("embedding", "translation", "pairs"): "same",
        ("lego", "tasks"): "chain", ("lego", "variants"): "chain_tied", ("models",): "encoder",
        ("pretraining", "variants"): "v1", ("pretraining", "comparisons"): "v1_over_base",
    }  # fmt: skip
    named = 0
    for place, like in sections.items():
        section = at(config, place)
        for name in [*WORDS, *FOLDERS, "seed0"]:
            one = copy.deepcopy(config)
            at(one, place)[name] = at(one, place)[like]
            if not refused(one):  # some are refused for the folders that results have
                section[name] = section[like]
                named += 1
    config["text"]["models"] = config["embedding"]["models"] = ["NONE", "heads", "encoder"]
    config["topic"]["variants"]["NONE"] = {"corpora": ["NONE", "heads"]}
    config["pretraining"]["corpus"] = "NONE"
    assert named > 250 and refused(config) == []
    configure(project, config)
    try:
        assert "Job stats:" in printed(project)
    finally:
        configure(project, CONFIGURATIONS["tiny"])


@pytest.mark.slow
def test_a_model_may_be_called_none(project: Checkout) -> None:
    """A model may be called NONE although all others are removed."""
    own = {"kind": "topic", "corpus": "lda", "variant": "bert"}
    config = merged(
        CONFIGURATIONS["tiny"],
        {
            "models": {"encoder": None, "decoder": None, "reader": None, "NONE": own},
            "topic": {"variants": {"bert": {"model": {"kind": "bert"}}}},
            "text": {"models": ["NONE"]},
            "embedding": {
                "models": ["NONE"],
                "alignment": {"pairs": {"twins": None}},
                "finetuning": {"runs": {"mine": {"model": "NONE"}}, "adapters": {"lora": None}},
                "translation": {"pairs": {"same": {"lower": "NONE"}}},
            },
            "lego": {"variants": {"pretrained": None}},
        },
    )
    configure(project, config)
    try:
        assert "Job stats:" in printed(project)
    finally:
        configure(project, CONFIGURATIONS["tiny"])
