"""Which code a script really uses, as one short digest.

A job should run again when its code changed, and only then. So the digest covers the statements of
the script and, of every local module it imports, only the definitions it reaches: names are
followed through imports, re-exports and `module.attribute`, inside functions too. Comments,
docstrings, formatting, descriptions of configuration fields, and functions that nobody calls do not
count.

What executes on import counts as well: statements of a module that are not definitions, and
definitions under a decorator of this project, which may put them into a registry. Where the
analysis cannot tell (a star import, a module passed around as an object) the whole module counts.
Out of its sight are imports by a computed name, files that the code reads, and installed packages.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from scripts.anatomy import artifacts

PACKAGE = "scripts"
"""The one top-level package whose code counts."""

LIBRARY = "anatomy"
"""Its folder that holds no scripts."""

Dotted = tuple[str, ...]
"""A dotted name: `("scripts", "anatomy", "topic", "theory")`."""


def fingerprint(script: str | Path, *, root: Path, ignore: Collection[str] = frozenset()) -> str:
    """The digest (16 hexadecimal digits) of the code that `script` uses, itself included.

    Modules in `ignore` (dotted names) do not count, nor does what only they use: code that decides
    where a job runs or what it logs, and not what it makes.

    `script` is a path, absolute or below `root`; local modules are those of `root/scripts`.
    The same code has the same digest in any folder.
    Raises FileNotFoundError without the script, and ValueError with the file and the line for one
    that is not Python.
    """
    reach = _Reach(Path(root).resolve(), ignore)
    reach.run_script(Path(script))
    digest = hashlib.blake2b(digest_size=8)
    for (module, _), part in sorted(reach.found.items()):
        digest.update(f"{'.'.join(module)} {len(part.text)}\n{part.text}\n".encode())
    return digest.hexdigest()


def fingerprints(
    root: Path, *, ignore: Collection[str] = frozenset(), remembered: Path
) -> dict[str, str]:
    """The digests of all scripts, by their paths below `root/scripts`, such as `topic/train.py`.

    They are kept in the file `remembered`, and taken from there as long as no code changes: to
    work them out takes a second, and a workflow manager reads its rules for each job of a cluster.
    A file that cannot be read or written is done without.
    """
    code = hashlib.blake2b(f"{sorted(ignore)}\n".encode())
    for file in sorted((root / PACKAGE).rglob("*.py")):
        text = file.read_bytes()
        code.update(f"{file.relative_to(root)} {len(text)}\n".encode() + text)
    scripts = [
        script.relative_to(root / PACKAGE).as_posix()
        for script in sorted((root / PACKAGE).glob("*/*.py"))
        if script.parent.name != LIBRARY
    ]
    try:
        known = artifacts.read_json(remembered)
        if known["code"] == code.hexdigest() and known["scripts"].keys() == {*scripts}:
            return known["scripts"]
    except (artifacts.UnreadableArtifact, LookupError, TypeError, AttributeError):
        pass
    found = {name: fingerprint(root / PACKAGE / name, root=root, ignore=ignore) for name in scripts}
    with suppress(OSError, artifacts.UnwritableArtifact):
        artifacts.write_json(remembered, {"code": code.hexdigest(), "scripts": found})
    return found


# --- what is reached ----------------------------------------------------------------------------


class _Reach:
    """Walks from a script to all it uses; `found` maps (module, position) to the part there."""

    def __init__(self, root: Path, ignore: Collection[str]) -> None:
        self.root, self.ignore = root, ignore
        self.found: dict[tuple[Dotted, int], _Part] = {}
        self.modules: dict[Dotted, _Module | None] = {}
        self.pending: list[tuple[_Module, _Part]] = []
        self.executed: set[Dotted] = set()
        self.followed: set[Dotted] = set()

    def run_script(self, script: Path) -> None:
        """Takes every statement of the script, and what they use."""
        file = (self.root / script).resolve()
        inside = file.is_relative_to(self.root)
        name = file.relative_to(self.root).with_suffix("").parts if inside else (file.stem,)
        module = self.modules[name] = _parsed(name, name[:-1], file)
        self.execute(name[:-1])
        self.execute_body(module)
        for position in range(len(module.parts)):
            self.take(module, position)
        while self.pending:
            self.expand(*self.pending.pop())

    def expand(self, module: _Module, part: _Part) -> None:
        """Goes on to all that one statement refers to."""
        for name in part.uses.imported:
            self.execute(name)
        for name in part.uses.targets:
            self.follow(name)
        for name in part.uses.names:
            self.use(module, name)

    def take(self, module: _Module, position: int) -> None:
        """Marks one part of a module as used."""
        if (module.name, position) not in self.found:
            part = self.found[module.name, position] = module.parts[position]
            self.pending.append((module, part))

    def take_whole(self, module: _Module) -> None:
        """Marks all of a module, with all it imports, as used."""
        for name in module.names:
            self.use(module, (name,))
        for position in range(len(module.parts)):
            self.take(module, position)

    def use(self, module: _Module, name: Dotted) -> None:
        """Marks what the module's top level binds to `name[0]`, and follows it if imported."""
        for position in module.names.get(name[0], ()):
            self.take(module, position)
            alias = module.parts[position].alias
            if alias:
                self.follow(alias.target + name[1:])

    def follow(self, target: Dotted) -> None:
        """Finds what an absolute dotted name stands for: modules first, then a name in the last."""
        if target in self.followed or not (module := self.load(target[:1])):
            return
        self.followed.add(target)
        for depth in range(1, len(target)):
            # A package's name may be both its submodule and something it binds: then both count.
            self.use(module, target[depth:])
            child = self.load(target[: depth + 1])
            if child is None:
                if target[depth] not in module.names:
                    self.take_whole(module)
                return
            module = child
        self.take_whole(module)

    def execute(self, target: Dotted) -> None:
        """Runs the modules that importing a dotted name runs: its packages, and itself."""
        for length in range(1, len(target) + 1):
            module = self.load(target[:length])
            if module is None:
                return
            self.execute_body(module)

    def execute_body(self, module: _Module) -> None:
        """Marks what a module does when it is imported, and runs what it imports in turn."""
        if module.name in self.executed:
            return
        self.executed.add(module.name)
        for position in module.acting:
            self.take(module, position)
        for alias in module.aliases:
            self.execute(alias.module)
            if alias.bound == "*":
                self.follow(alias.target)

    def load(self, name: Dotted) -> _Module | None:
        """The local module of that name, or None."""
        if name not in self.modules:
            self.modules[name] = self.find(name) if name[:1] == (PACKAGE,) else None
        return self.modules[name]

    def find(self, name: Dotted) -> _Module | None:
        if ".".join(name) in self.ignore:
            return None
        folder = self.root.joinpath(*name)
        if (file := folder / "__init__.py").is_file():
            return _parsed(name, name, file)
        if (file := folder.with_name(f"{name[-1]}.py")).is_file():
            return _parsed(name, name[:-1], file)
        return _Module(name, []) if folder.is_dir() else None


# --- a module and its parts ---------------------------------------------------------------------


class _Alias(NamedTuple):
    """One name that an import binds: `bound` stands for `target`; `module` is what it runs."""

    bound: str
    target: Dotted
    module: Dotted


class _Part:
    """One top-level statement of a module, or one alias of an import."""

    def __init__(self, node: ast.stmt, package: Dotted, alias: _Alias | None = None) -> None:
        self.node, self.package, self.alias = node, package, alias

    @cached_property
    def text(self) -> str:
        """What counts in the digest: the syntax, without positions and strings that do nothing."""
        if self.alias:
            return f"{self.alias.bound} = {'.'.join(self.alias.target)}"
        for node in ast.walk(self.node):
            if isinstance(body := getattr(node, "body", None), list):
                body[:] = [statement for statement in body if not _is_comment(statement)]
            if isinstance(node, ast.Call):  # what a configuration field says about itself
                node.keywords[:] = [word for word in node.keywords if word.arg != "description"]
        return _written(self.node)

    @cached_property
    def uses(self) -> _Uses:
        """What the statement refers to; nothing for an import, which only binds."""
        uses = _Uses(self.package)
        if not self.alias:
            uses.visit(self.node)
        return uses

    @cached_property
    def names(self) -> list[str]:
        """The names that it binds at the top level."""
        return [self.alias.bound] if self.alias else [*_bound([self.node], self.package)]


class _Module:
    """A parsed module: its parts, which of them bind a name, and which act on import."""

    def __init__(self, name: Dotted, parts: list[_Part]) -> None:
        self.name, self.parts = name, parts
        self.names: dict[str, list[int]] = {}
        for position, part in enumerate(parts):
            for bound in part.names:
                self.names.setdefault(bound, []).append(position)
        self.aliases = [part.alias for part in parts if part.alias]
        self.acting = [position for position, part in enumerate(parts) if self.acts(part)]

    def acts(self, part: _Part) -> bool:
        """Whether a part does more than bind a name."""
        match part.node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as definition:
                return any(map(self.is_local, definition.decorator_list))
            case ast.Assign(targets=targets):
                return not all(map(_is_names, targets))
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                return not _is_names(target)
        return part.alias is None

    def is_local(self, decorator: ast.expr) -> bool:
        """Whether a decorator is code of this project."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        parts = [self.parts[i] for name in _dotted(called)[:1] for i in self.names.get(name, ())]
        return any(not part.alias or part.alias.target[0] == PACKAGE for part in parts)


def _written(node: object) -> str:
    """A syntax tree as text, without positions and without what is empty or left out.

    `ast.dump` writes the same code differently from one version of Python to the next, whose trees
    have ever more fields that are empty.
    """
    if isinstance(node, list):
        return f"[{', '.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Constant):
        return repr(node.value)
    fields = [
        f"{name}={_written(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != []
    ]
    return f"{type(node).__name__}({', '.join(fields)})"


def _parsed(name: Dotted, package: Dotted, file: Path) -> _Module:
    """The module in a file; `package` is where its relative imports start."""
    status = file.stat()
    return _parse(name, package, file, status.st_mtime_ns, status.st_size)


@cache
def _parse(name: Dotted, package: Dotted, file: Path, _mtime: int, _size: int) -> _Module:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ValueError(f"{file}, line {line}: {getattr(error, 'msg', error)}") from error
    return _Module(name, [part for node in tree.body for part in _parts(node, package)])


def _parts(node: ast.stmt, package: Dotted) -> Iterator[_Part]:
    """The parts of a top-level statement; none for what only a type checker or a reader sees."""
    if isinstance(node, ast.If) and _dotted(node.test)[-1:] == ("TYPE_CHECKING",):
        for statement in node.orelse:
            yield from _parts(statement, package)
        return
    if not isinstance(node, ast.Import | ast.ImportFrom) and not _is_comment(node):
        yield _Part(node, package)
    for inner in _same_scope([node]):  # inside `try:` too
        for alias in _aliases(inner, package):
            yield _Part(node, package, alias)


def _is_comment(node: ast.stmt) -> bool:
    """Whether a statement is a string and nothing else, as docstrings are."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_names(target: ast.expr) -> bool:
    """Whether an assignment binds names only, and sets no attribute and no item."""
    return not any(isinstance(node, ast.Attribute | ast.Subscript) for node in ast.walk(target))


# --- names --------------------------------------------------------------------------------------

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SCOPES = _FUNCTIONS | _COMPREHENSIONS | ast.ClassDef | ast.Lambda


class _Uses(ast.NodeVisitor):
    """Collects what a statement refers to, all as dotted names.

    `names` start at a name of the module, `targets` were reached through imports inside functions,
    and `imported` is what those imports run. A scope maps the names of a function's own, which
    hide those of the module, to what they import; where in doubt a name counts as the module's.
    """

    def __init__(self, package: Dotted) -> None:
        self.package = package
        self.names: set[Dotted] = set()
        self.targets: set[Dotted] = set()
        self.imported: set[Dotted] = set()
        self.scopes: list[dict[str, list[Dotted]]] = []

    def refer(self, name: Dotted) -> None:
        for scope in reversed(self.scopes):
            if name[0] in scope:
                self.targets.update(target + name[1:] for target in scope[name[0]])
                return
        self.names.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        self.refer((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if name := _dotted(node):
            self.refer(name)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: _FUNCTIONS) -> None:
        outside = [*node.decorator_list, node.args, node.returns]  # evaluated by the definition
        self.visit_all([*outside, *getattr(node, "type_params", ())])
        self.visit_inside(_own_names(node, self.package), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self.visit_inside(dict.fromkeys(_parameters(node.args), []), [node.body])

    def visit_comprehension_of(self, node: _COMPREHENSIONS) -> None:
        self.visit(node.generators[0].iter)  # evaluated outside
        targets = [generator.target for generator in node.generators]
        self.visit_inside(_bound(targets, self.package), ast.iter_child_nodes(node))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_of

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.imported.update(alias.module for alias in _aliases(node, self.package))

    visit_ImportFrom = visit_Import

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        # The names of a class hide nothing from its methods, so what it imports counts in full.
        for targets in _bound(node.body, self.package).values():
            self.targets.update(targets)
        self.generic_visit(node)

    def visit_inside(self, scope: dict[str, list[Dotted]], nodes: Iterable[ast.AST]) -> None:
        self.scopes.append(scope)
        self.visit_all(nodes)
        self.scopes.pop()

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)


def _dotted(node: ast.expr) -> Dotted:
    """`a.b.c` as a tuple; empty for anything but names and attributes."""
    attributes: Dotted = ()
    while isinstance(node, ast.Attribute):
        attributes = (node.attr, *attributes)
        node = node.value
    return (node.id, *attributes) if isinstance(node, ast.Name) else ()


def _aliases(node: ast.AST, package: Dotted) -> list[_Alias]:
    """What a statement in a module of `package` imports. A star binds the name `*`."""
    if isinstance(node, ast.Import):
        paths = [(alias.asname, tuple(alias.name.split("."))) for alias in node.names]
        return [_Alias(name or path[0], path if name else path[:1], path) for name, path in paths]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) + 1 - node.level] if node.level else ()
    base += tuple(node.module.split(".")) if node.module else ()
    names = [(alias.asname or alias.name, alias.name) for alias in node.names]
    targets = [(bound, base if name == "*" else (*base, name)) for bound, name in names]
    return [_Alias(bound, target, target) for bound, target in targets]


def _same_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes below that bind names in the scope of `nodes` themselves."""
    todo = [*nodes]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _SCOPES):
            todo.extend(ast.iter_child_nodes(node))


def _bound(nodes: Iterable[ast.AST], package: Dotted) -> dict[str, list[Dotted]]:
    """The names that are bound in the scope of `nodes`, each with what it imports, if anything."""
    bound: dict[str, list[Dotted]] = {}
    for node in _same_scope(nodes):
        for alias in _aliases(node, package):
            bound.setdefault(alias.bound, []).append(alias.target)
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.MatchMapping(rest=str(name)):
                bound.setdefault(name, [])
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.setdefault(name, [])
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                bound.setdefault(name, [])
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                bound.setdefault(name, [])
    return bound


def _own_names(function: _FUNCTIONS, package: Dotted) -> dict[str, list[Dotted]]:
    """The local names of a function: its parameters and what its body binds."""
    own = dict.fromkeys(_parameters(function.args), []) | _bound(function.body, package)
    for node in _same_scope(function.body):
        if isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                own.pop(name, None)
    return own


def _parameters(arguments: ast.arguments) -> list[str]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [arg.arg for arg in (*named, arguments.vararg, arguments.kwarg) if arg]
