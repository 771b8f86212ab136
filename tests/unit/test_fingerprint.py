"""The digest of a script depends on the code that it uses, and on nothing else."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.anatomy.fingerprint import fingerprint, fingerprints

ROOT = Path(__file__).parents[2]
SCRIPT = "scripts/study/train.py"
LIBRARY = "scripts/lib/core.py"

Digest = Callable[..., str]


@pytest.fixture
def digest(tmp_path: Path) -> Digest:
    """A function that writes a script and its modules to a new folder and returns the digest."""

    def write_and_digest(script: str, core: str = "", **modules: str) -> str:
        root = tmp_path / str(len(os.listdir(tmp_path)))
        sources = {"study.train": script, "lib.core": core, "__init__": "", "lib.__init__": ""}
        for name, source in (sources | modules).items():
            path = root / "scripts" / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
        return fingerprint(SCRIPT, root=root)

    return write_and_digest


CORE = '''
    """Docstring."""
    import math

    RATE = 1
    OTHER = 1

    def helper(x):
        return x + RATE

    def used(x):
        """What it does."""
        return helper(x)

    def unused(x):
        return OTHER * math.pi
'''
USER = "from scripts.lib.core import used\nprint(used(1))"


def test_digest_is_short_and_repeats_in_any_folder(digest: Digest) -> None:
    first = digest(USER, CORE)
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert digest(USER, CORE) == first  # written to another folder, at another time


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Docstring."""', "# A comment."),
        ('"""What it does."""', '"""Something else,\n    in two lines."""'),
        ("return helper(x)", "return helper(\n            x  # why\n        )"),
        ("RATE = 1", "RATE = (1)\n    '''What it is.'''"),
        ("OTHER = 1", "OTHER = 2"),
        ("OTHER * math.pi", "OTHER * math.e"),
        ("import math", "import math, random\n    from math import tau"),
        ("def unused(x)", "def added():\n        return 1\n\n    def unused(x)"),
    ],
)
def test_edits_that_keep_the_digest(digest: Digest, old: str, new: str) -> None:
    assert old in CORE
    assert digest(USER, CORE.replace(old, new)) == digest(USER, CORE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return helper(x)", "return helper(x) + 0"),
        ("return x + RATE", "return x - RATE"),
        ("RATE = 1\n", "RATE = 2\n"),
        ("RATE = 1\n", "RATE = 1\n    RATE += 1\n"),
        ("import math", "import math\n    math.pi = 3"),
        ("import math", "import math\n    print(1)"),
        ("import math", "import math\n    if True:\n        RATE = 4"),
    ],
)
def test_edits_that_change_the_digest(digest: Digest, old: str, new: str) -> None:
    assert old in CORE
    assert digest(USER, CORE.replace(old, new)) != digest(USER, CORE)


def test_the_script_itself_counts_but_not_its_comments(digest: Digest) -> None:
    assert digest(USER + "  # why", CORE) == digest(USER, CORE)
    assert digest(USER + "\nprint(2)", CORE) != digest(USER, CORE)
    assert digest("def alone(): pass") != digest("def alone(): return 1")


# A script and a library, where replacing `1` by `2` changes the digest and `8` by `9` does not
REFERENCES = {
    "alias": ("from scripts.lib.core import used as f; f()", "def used(): 1\ndef other(): 8"),
    "module": ("from scripts.lib import core; core.used()", "def used(): 1\ndef other(): 8"),
    "module alias": (
        "import scripts.lib.core as c\ndef main(): return c.used",
        "def used(): 1\ndef other(): 8",
    ),
    "dotted": ("import scripts.lib.core; scripts.lib.core.used()", "def used(): 1\nOTHER = 8"),
    "relative": ("from ..lib.core import used; used()", "def used(): 1\ndef other(): 8"),
    "relative module": ("from ..lib import core; core.used()", "def used(): 1\ndef other(): 8"),
    "in a function": (
        "def main():\n  from scripts.lib.core import used\n  used()",
        "def used(): 1\ndef other(): 8",
    ),
    "module in a function": (
        "def main():\n  from scripts.lib import core\n  core.used()",
        "def used(): 1\ndef other(): 8",
    ),
    "in a try": (
        "try:\n  from scripts.lib.core import used\nexcept ImportError:\n  used = None\nused()",
        "def used(): 1\ndef other(): 8",
    ),
    "in a class": (
        "class A:\n  from scripts.lib.core import used\n  def f(self): self.used()",
        "def used(): 1\ndef other(): 8",
    ),
    "star": ("from scripts.lib.core import *", "def used(): 1\nOTHER = 1"),
    "as an object": ("from scripts.lib import core; dir(core)", "def used(): 1\nOTHER = 1"),
    "unknown attribute": ("from scripts.lib import core; core.__dict__", "def used(): 1\nB = 1"),
    "default": (
        "from scripts.lib.core import used; used()",
        "SIZE = 1\nOTHER = 8\ndef used(n=SIZE): n",
    ),
    "keyword default": (
        "from scripts.lib.core import used; used()",
        "SIZE = 1\nOTHER = 8\ndef used(*, n=SIZE): n",
    ),
    "annotation": (
        "from scripts.lib.core import used; used()",
        "class A: x: int = 1\nclass B: x = 8\ndef used(n: A) -> None: n",
    ),
    "base class": (
        "from scripts.lib.core import Model; Model()",
        "class Base:\n  x = 1\nclass Other:\n  x = 8\nclass Model(Base): pass",
    ),
    "decorator": (
        "from scripts.lib.core import used; used()",
        "def wrap(f): return 1\ndef other(f): return 8\n@wrap\ndef used(): pass",
    ),
    "method": (
        "from scripts.lib.core import Model; Model()",
        "def loss(): 1\ndef other(): 8\nclass Model:\n  def f(self): return loss()",
    ),
    "class name hides nothing": (
        "from scripts.lib.core import Model; Model()",
        "def loss(): 1\nclass Model:\n  loss = None\n  def f(self): return loss()",
    ),
    "unpacking": ("from scripts.lib.core import a; a", "a, (b, *c) = 1, 1\nd = 8"),
    "global": (
        "from scripts.lib.core import used; used()",
        "state = 1\nother = 8\ndef used():\n  global state\n  state = state",
    ),
    "comprehension variable stays inside": (
        "from scripts.lib.core import used; used()",
        "def x(): 1\ndef used(): return [x for x in 'ab'], x()",
    ),
    "parameter": ("from scripts.lib.core import used; used(0)", "def x(): 8\ndef used(x): x"),
    "local": (
        "from scripts.lib.core import used; used()",
        "def x(): 8\ndef y(): 8\ndef used():\n  x = 0\n  for y in x: y\n  return lambda x: x + y",
    ),
    "lambda and comprehension": (
        "from scripts.lib.core import used; used()",
        "def x(): 8\ndef z(): 1\ndef used(): return (lambda x: x), {x: x for x in z()}",
    ),
    "match": (
        "from scripts.lib.core import used; used(0)",
        "def x(): 8\ndef used(v):\n  match v:\n    case [x]: return x",
    ),
    "type checking": (
        "from scripts.lib.core import used; used()",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  X = 8\nelse:\n  print(1)\n"
        "def used(): 1",
    ),
    "nested function": (
        "from scripts.lib.core import used; used()",
        "def deep(): 1\ndef other(): 8\ndef used():\n  def inner():\n    return deep()\n  inner()",
    ),
    "registered": (
        "from scripts.lib.core import ALL; ALL",
        "ALL = {}\ndef add(f): ALL[f] = f\n@add\ndef used(): 1\ndef other(): 8",
    ),
    "library decorator": (
        "from scripts.lib.core import used; used()",
        "from functools import cache\n@cache\ndef used(): 1\n@cache\ndef other(): 8",
    ),
}


@pytest.mark.parametrize(("script", "core"), REFERENCES.values(), ids=REFERENCES)
def test_kinds_of_references(digest: Digest, script: str, core: str) -> None:
    before = digest(script, core)
    for index, character in enumerate(core):
        if character == "1":
            assert digest(script, f"{core[:index]}2{core[index + 1 :]}") != before
    assert digest(script, core.replace("8", "9")) == before


# How module `{0}` can call function `{1}` of module `{2}`: an import, and the call.
STYLES = [
    ("from scripts.{2} import {1} as {2}_{1}", "{2}_{1}()"),
    ("from .{2} import {1} as {2}_{1}", "{2}_{1}()"),
    ("from scripts import {2}", "{2}.{1}()"),
    ("from . import {2} as {2}_", "{2}_.{1}()"),
    ("import scripts.{2}", "scripts.{2}.{1}()"),
    ("import scripts.{2} as {2}__", "{2}__.{1}()"),
    ("from scripts import hub", "hub.{2}.{1}()"),
    ("from scripts.hub import {2}", "{2}.{1}()"),
]
FUNCTIONS = [(module, function) for module in ("m0", "m1", "m2") for function in ("f", "g", "h")]
CALLS = st.tuples(st.sampled_from(FUNCTIONS), st.sampled_from(STYLES), st.booleans())
PROGRAMS = st.fixed_dictionaries(
    dict.fromkeys(FUNCTIONS, st.lists(CALLS, max_size=2)) | {("s", "main"): st.lists(CALLS)}
)
Program = dict[tuple[str, str], list[tuple[tuple[str, str], tuple[str, str], bool]]]


@given(PROGRAMS, st.sampled_from(FUNCTIONS))
@settings(deadline=None, max_examples=60)
def test_exactly_the_called_functions_count(
    tmp_path_factory: pytest.TempPathFactory, program: Program, edited: tuple[str, str]
) -> None:
    root = tmp_path_factory.mktemp("program")
    write_program(root, program, edited=None)
    before = fingerprint("scripts/s.py", root=root)
    write_program(root, program, edited=edited)
    assert (fingerprint("scripts/s.py", root=root) != before) == (edited in reached(program))


def write_program(root: Path, program: Program, edited: tuple[str, str] | None) -> None:
    """Write a module for each first name in `program`, and a function for each second."""
    sources = {"hub": "from . import m0, m1, m2", "s": "", "m0": "", "m1": "", "m2": ""}
    for (module, function), calls in program.items():
        lines = ["'edited'.upper()"] * ((module, function) == edited)
        for (target, name), (statement, call), inside in calls:
            statement, call = (text.format(module, name, target) for text in (statement, call))
            lines += [statement, call] if inside else [call]
            sources[module] = sources[module] if inside else f"{statement}\n{sources[module]}"
        sources[module] += "\n  ".join([f"\ndef {function}():", *lines, "pass"])
    (root / "scripts").mkdir(exist_ok=True)
    for module, source in sources.items():
        (root / "scripts" / f"{module}.py").write_text(source)


def reached(program: Program) -> set[tuple[str, str]]:
    """Return all functions that the script's `main` calls, directly or not."""
    called, todo = set(), [("s", "main")]
    while todo:
        for target, *_ in program[todo.pop()]:
            if target not in called:
                called.add(target)
                todo.append(target)
    return called


def test_chains_of_calls_through_modules(digest: Digest) -> None:
    core = "from .near import step\nfrom .near import spare\ndef used(): return step()"
    near = "from scripts.far import distance as d\ndef step(): return d()\ndef spare(): return 8"
    far = "def distance(): return 1\ndef back():\n  from scripts.lib.core import used"

    def take(near: str = near, far: str = far) -> str:
        return digest(USER, core, **{"lib.near": near, "far": far})

    assert take(far=far.replace("1", "2")) != take()
    assert take(near=near.replace("d()", "d() + 1")) != take()
    assert take(near=near.replace("8", "9")) == take()
    assert take(far=far.replace("back", "front")) == take()


def test_names_re_exported_by_a_package(digest: Digest) -> None:
    hub = "from .core import used, other\nfrom . import core"
    core = "def used(): return 1\ndef other(): return 8"
    for script in (
        "from scripts.lib import used; used()",
        "from scripts import lib; lib.core.used",
    ):
        before = digest(script, core, **{"lib.__init__": hub})
        assert digest(script, core.replace("1", "2"), **{"lib.__init__": hub}) != before
        assert digest(script, core.replace("8", "9"), **{"lib.__init__": hub}) == before


def test_names_re_exported_by_a_star_import(digest: Digest) -> None:
    script = "from scripts.hub import *\nused()"
    hubs = {"hub": "from scripts.lib.core import used"}
    assert digest(script, "def used(): 1", **hubs) != digest(script, "def used(): 2", **hubs)
    hubs = {"hub": "from scripts.lib.core import *"}
    assert digest(script, "def used(): 1", **hubs) != digest(script, "def used(): 2", **hubs)


def test_importing_executes_packages_and_their_imports(digest: Digest) -> None:
    core = "import scripts.setup\ndef used(): pass"
    for name in ("__init__", "lib.__init__", "setup"):
        quiet, loud = {"setup": "", name: "x = 1"}, {"setup": "", name: "print(1)"}
        assert digest(USER, core, **quiet) == digest(USER, core, **{"setup": "", name: "x = 2"})
        assert digest(USER, core, **quiet) != digest(USER, core, **loud)


def test_circular_imports(digest: Digest) -> None:
    core = "from scripts import other\ndef used(): return other.g()"
    other = "from scripts.lib import core\ndef g(): return core.used()"
    assert digest(USER, core, other=other) != digest(USER, core, other=other + "+1")


def test_the_name_of_a_module_counts(digest: Digest) -> None:
    moved = {"lib.twin": "def used(): 1"}
    twin = USER.replace("core", "twin")
    assert digest(USER, "def used(): 1", **moved) != digest(twin, "def used(): 1", **moved)


def test_installed_packages_do_not_count(digest: Digest) -> None:
    script = "import os.path, numpy as np\nfrom torch.nn import *\nnp.zeros(os.path.sep)"
    assert digest(script) == digest(script, "changed = 1")


def test_folders_without_init_are_packages(tmp_path: Path) -> None:
    (tmp_path / "scripts/lib").mkdir(parents=True)
    (tmp_path / "scripts/run.py").write_text(USER)
    (tmp_path / LIBRARY).write_text("def used(): 1")
    before = fingerprint("scripts/run.py", root=tmp_path)
    (tmp_path / LIBRARY).write_text("def used(): 1 + 1")
    assert fingerprint(tmp_path / "scripts/run.py", root=tmp_path) != before


def test_edits_within_one_process_count_and_dates_do_not(tmp_path: Path) -> None:
    script = tmp_path / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text("x = 1")
    before = fingerprint(script, root=tmp_path)
    os.utime(script, ns=(1, 1))
    assert fingerprint(SCRIPT, root=tmp_path) == before
    script.write_text("x = 10")
    assert fingerprint(SCRIPT, root=tmp_path) != before


@pytest.mark.parametrize("source", ["x = 1\ny = = 2", "x = 1\nreturn\x00", "x = 1\n'\xff'"])
def test_a_file_that_is_not_python_is_named_with_its_line(tmp_path: Path, source: str) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/bad.py").write_bytes(source.encode("latin-1"))
    (tmp_path / "scripts/good.py").write_text("from scripts import bad")
    with pytest.raises(ValueError, match=r"scripts/bad.py, line \d: .+") as caught:
        fingerprint("scripts/good.py", root=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train.py"):
        fingerprint(SCRIPT, root=tmp_path)


def test_the_digest_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from pathlib import Path; from scripts.anatomy.fingerprint import fingerprint;"
        "print(fingerprint('scripts/anatomy/fingerprint.py', root=Path()))"
    )
    digests = {
        subprocess.check_output(
            [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_sixty_scripts_over_forty_modules_take_under_two_seconds(tmp_path: Path) -> None:
    package = tmp_path / "scripts"
    package.mkdir()
    body = "".join(f"    x{n} = np.sum(a[{n}:, None] * b, axis=-1) + {n}\n" for n in range(5))
    for i in range(40):
        head = f"import numpy as np\nfrom scripts.m{i + 1} import f0 as g\n" if i < 39 else ""
        functions = [f"def f{n}(a, b):\n{body}    return g(x0)\n" for n in range(15)]
        (package / f"m{i}.py").write_text(head + "\n".join(functions))
    for i in range(60):
        (package / f"s{i}.py").write_text(f"from scripts import m{i % 9}\nm{i % 9}.f1(1, {i})\n")
    start = time.process_time()
    assert len({fingerprint(f"scripts/s{i}.py", root=tmp_path) for i in range(60)}) == 60
    assert time.process_time() - start < 1.5  # about 0.3 s on an idle core


def test_the_digest_does_not_depend_on_the_version_of_python(digest: Digest) -> None:
    script = """
        from scripts.lib.core import used

        def f(*names: str, end=None, **more) -> list[str]:
            return [*(f"{name!r:>9}{end}" for name in names), *map(lambda x: -x, [1, True])]

        match f(*"ab", **{"x": None}):
            case [first, *_] if first is not None:
                print(used(f"{first=}"), b"", 1.0, ...)
            case None | False:
                raise SystemExit
    """
    assert digest(script, CORE) == "ce9c6925075dc473"


# --- digests of all scripts -----------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two scripts, one of which uses the library."""
    for name, source in (("study/train", USER), ("study/plot", "print(1)"), ("anatomy/x", "")):
        path = tmp_path / f"project/scripts/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    library = tmp_path / "project" / LIBRARY
    library.parent.mkdir()
    library.write_text(textwrap.dedent(CORE))
    return tmp_path / "project"


def test_stored_digests_are_replaced_when_code_changes(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept/digests.json"
    scripts = ("study/train.py", "study/plot.py", "lib/core.py")

    def single() -> dict[str, str]:
        return {name: fingerprint(f"scripts/{name}", root=project) for name in scripts}

    first = fingerprints(project, cache_file=file)
    assert first == single()  # without the library
    written = file.stat().st_mtime_ns
    assert fingerprints(project, cache_file=file) == first
    assert file.stat().st_mtime_ns == written
    edited = project / LIBRARY
    times = (edited.stat().st_atime, edited.stat().st_mtime)
    edited.write_text(edited.read_text().replace("RATE = 1", "RATE = 2"))
    os.utime(edited, times)  # the same size and date
    second = fingerprints(project, cache_file=file)
    assert second == single()
    assert [name for name in scripts if second[name] != first[name]] == [scripts[0], scripts[2]]
    # other modules are ignored
    assert fingerprints(project, ignore={"scripts.lib.core"}, cache_file=file) != second


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"code": 1}', '{"scripts": {"a": "b"}}'])
def test_a_damaged_or_unwritable_file_of_digests_is_ignored(
    project: Path, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "digests.json"
    file.write_text(text)
    digests = fingerprints(project, cache_file=file)
    assert fingerprint(SCRIPT, root=project) == digests["study/train.py"]
    assert fingerprints(project, cache_file=tmp_path / "digests.json/below") == digests
