"""Digests of the code that each script uses, so that a job reruns only when its code changed.

A digest covers the statements of the script and the definitions that it reaches in local modules.
Names are followed through imports, re-exports and `module.attribute`, inside functions too.
Comments, docstrings, formatting, descriptions of configuration fields and unused functions do not
count.

Code that executes on import counts as well: statements of a module that are not definitions, and
definitions under a decorator of this project, which may register them. Where the analysis is
ambiguous (a star import, a module used as an object), the whole module counts. Imports by a
computed name, files that the code reads, and installed packages are not covered.
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
"""The top-level package whose code counts."""

LIBRARY = "anatomy"
"""The folder of the package that contains no scripts."""

Dotted = tuple[str, ...]
"""A dotted name: `("scripts", "anatomy", "topic", "theory")`."""


def fingerprint(script: str | Path, *, root: Path, ignore: Collection[str] = frozenset()) -> str:
    """Return the digest (16 hexadecimal digits) of the code that `script` uses, itself included.

    `script` is a path, absolute or relative to `root`; local modules are those of `root/scripts`.
    Modules in `ignore` (dotted names), and code that only they use, do not count: they determine
    where a job runs or what it logs, and not what it makes. The digest does not depend on `root`.
    Raises FileNotFoundError if the script is missing, and ValueError with the file and the line if
    a file is not valid Python.
    """
    reach = _Reach(Path(root).resolve(), ignore)
    reach.run_script(Path(script))
    digest = hashlib.blake2b(digest_size=8)
    for (module, _), part in sorted(reach.parts.items()):
        digest.update(f"{'.'.join(module)} {len(part.text)}\n{part.text}\n".encode())
    return digest.hexdigest()


def fingerprints(
    root: Path, *, ignore: Collection[str] = frozenset(), cache_file: Path
) -> dict[str, str]:
    """Return the digests of all scripts by their paths below `root/scripts`, as `topic/train.py`.

    The file `cache_file` stores them until any code changes: computing them takes a second, and a
    workflow manager reads its rules for each job of a cluster. If the file cannot be read or
    written, the digests are computed each time.
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
        stored = artifacts.read_json(cache_file)
        if stored["code"] == code.hexdigest() and stored["scripts"].keys() == {*scripts}:
            return stored["scripts"]
    except (artifacts.UnreadableArtifact, LookupError, TypeError, AttributeError):
        pass
    digests = {
        name: fingerprint(root / PACKAGE / name, root=root, ignore=ignore) for name in scripts
    }
    with suppress(OSError, artifacts.UnwritableArtifact):
        artifacts.write_json(cache_file, {"code": code.hexdigest(), "scripts": digests})
    return digests


# --- what is reached ----------------------------------------------------------------------------


class _Reach:
    """A walk from a script to all code that it uses: `parts` by module and statement number."""

    def __init__(self, root: Path, ignore: Collection[str]) -> None:
        self.root, self.ignore = root, ignore
        self.parts: dict[tuple[Dotted, int], _Part] = {}
        self.modules: dict[Dotted, _Module | None] = {}
        self.pending: list[tuple[_Module, _Part]] = []
        self.executed: set[Dotted] = set()
        self.followed: set[Dotted] = set()

    def run_script(self, script: Path) -> None:
        """Take every statement of the script, and all code that they use."""
        file = (self.root / script).resolve()
        inside = file.is_relative_to(self.root)
        name = file.relative_to(self.root).with_suffix("").parts if inside else (file.stem,)
        module = self.modules[name] = _parsed(name, name[:-1], file)
        self.execute(name[:-1])
        self.execute_body(module)
        for index in range(len(module.parts)):
            self.take(module, index)
        while self.pending:
            self.expand(*self.pending.pop())

    def expand(self, module: _Module, part: _Part) -> None:
        """Follow all names that one statement refers to."""
        for name in part.uses.imported:
            self.execute(name)
        for name in part.uses.targets:
            self.follow(name)
        for name in part.uses.names:
            self.use(module, name)

    def take(self, module: _Module, index: int) -> None:
        """Mark one part of a module as used."""
        if (module.name, index) not in self.parts:
            part = self.parts[module.name, index] = module.parts[index]
            self.pending.append((module, part))

    def take_whole(self, module: _Module) -> None:
        """Mark all parts of a module, and all that it imports, as used."""
        for name in module.names:
            self.use(module, (name,))
        for index in range(len(module.parts)):
            self.take(module, index)

    def use(self, module: _Module, name: Dotted) -> None:
        """Mark what the module's top level binds to `name[0]`, and follow it if imported."""
        for index in module.names.get(name[0], ()):
            self.take(module, index)
            alias = module.parts[index].alias
            if alias:
                self.follow(alias.target + name[1:])

    def follow(self, target: Dotted) -> None:
        """Resolve an absolute dotted name: modules first, then a name in the last of them."""
        if target in self.followed or not (module := self.load(target[:1])):
            return
        self.followed.add(target)
        for depth in range(1, len(target)):
            # A name in a package may be both a submodule and something it binds: both count.
            self.use(module, target[depth:])
            child = self.load(target[: depth + 1])
            if child is None:
                if target[depth] not in module.names:
                    self.take_whole(module)
                return
            module = child
        self.take_whole(module)

    def execute(self, target: Dotted) -> None:
        """Execute the modules that importing a dotted name executes: its packages, and itself."""
        for length in range(1, len(target) + 1):
            module = self.load(target[:length])
            if module is None:
                return
            self.execute_body(module)

    def execute_body(self, module: _Module) -> None:
        """Mark what a module does when it is imported, and execute what it imports."""
        if module.name in self.executed:
            return
        self.executed.add(module.name)
        for index in module.acting:
            self.take(module, index)
        for alias in module.aliases:
            self.execute(alias.module)
            if alias.bound == "*":
                self.follow(alias.target)

    def load(self, name: Dotted) -> _Module | None:
        """Return the local module of that name, or None."""
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
    """One name that an import binds: `bound` is `target`; importing executes `module`."""

    bound: str
    target: Dotted
    module: Dotted


class _Part:
    """One top-level statement of a module, or one alias of an import."""

    def __init__(self, node: ast.stmt, package: Dotted, alias: _Alias | None = None) -> None:
        self.node, self.package, self.alias = node, package, alias

    @cached_property
    def text(self) -> str:
        """Return what counts in the digest: the syntax without positions and unused strings."""
        if self.alias:
            return f"{self.alias.bound} = {'.'.join(self.alias.target)}"
        for node in ast.walk(self.node):
            if isinstance(body := getattr(node, "body", None), list):
                body[:] = [statement for statement in body if not _is_comment(statement)]
            if isinstance(node, ast.Call):  # of a configuration field
                node.keywords[:] = [word for word in node.keywords if word.arg != "description"]
        return _written(self.node)

    @cached_property
    def uses(self) -> _Uses:
        """Return what the statement refers to; nothing for an import, which only binds."""
        uses = _Uses(self.package)
        if not self.alias:
            uses.visit(self.node)
        return uses

    @cached_property
    def names(self) -> list[str]:
        """Return the names that it binds at the top level."""
        return [self.alias.bound] if self.alias else [*_bound([self.node], self.package)]


class _Module:
    """A parsed module: its parts, which of them bind a name, and which act on import."""

    def __init__(self, name: Dotted, parts: list[_Part]) -> None:
        self.name, self.parts = name, parts
        self.names: dict[str, list[int]] = {}
        for index, part in enumerate(parts):
            for bound in part.names:
                self.names.setdefault(bound, []).append(index)
        self.aliases = [part.alias for part in parts if part.alias]
        self.acting = [index for index, part in enumerate(parts) if self.acts(part)]

    def acts(self, part: _Part) -> bool:
        """Return whether a part does more than bind a name."""
        match part.node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as definition:
                return any(map(self.is_local, definition.decorator_list))
            case ast.Assign(targets=targets):
                return not all(map(_is_names, targets))
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                return not _is_names(target)
        return part.alias is None

    def is_local(self, decorator: ast.expr) -> bool:
        """Return whether a decorator is code of this project."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        parts = [self.parts[i] for name in _dotted(called)[:1] for i in self.names.get(name, ())]
        return any(not part.alias or part.alias.target[0] == PACKAGE for part in parts)


def _written(node: object) -> str:
    """Return a syntax tree as text, without positions and empty fields.

    The text of `ast.dump` depends on the version of Python, since newer ones add fields.
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
    """Return the module in a file; relative imports start at `package`."""
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
    """Yield the parts of a top-level statement; none for docstrings and type checking."""
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
    """Return whether a statement is only a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_names(target: ast.expr) -> bool:
    """Return whether an assignment binds only names, and no attributes or items."""
    return not any(isinstance(node, ast.Attribute | ast.Subscript) for node in ast.walk(target))


# --- names --------------------------------------------------------------------------------------

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SCOPES = _FUNCTIONS | _COMPREHENSIONS | ast.ClassDef | ast.Lambda


class _Uses(ast.NodeVisitor):
    """Collect what a statement refers to, as dotted names.

    `names` start at a name of the module, `targets` are reached through imports inside functions,
    and `imported` is what those imports execute. A scope maps the local names of a function, which
    hide those of the module, to what they import. An ambiguous name counts as the module's.
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
    """Return `a.b.c` as a tuple; empty for anything but names and attributes."""
    attributes: Dotted = ()
    while isinstance(node, ast.Attribute):
        attributes = (node.attr, *attributes)
        node = node.value
    return (node.id, *attributes) if isinstance(node, ast.Name) else ()


def _aliases(node: ast.AST, package: Dotted) -> list[_Alias]:
    """Return what a statement in a module of `package` imports. A star binds the name `*`."""
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
    """Yield all nodes below that bind names in the scope of `nodes`."""
    todo = [*nodes]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _SCOPES):
            todo.extend(ast.iter_child_nodes(node))


def _bound(nodes: Iterable[ast.AST], package: Dotted) -> dict[str, list[Dotted]]:
    """Return the names bound in the scope of `nodes`, each with what it imports, if anything."""
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
    """Return the local names of a function: its parameters and what its body binds."""
    own = dict.fromkeys(_parameters(function.args), []) | _bound(function.body, package)
    for node in _same_scope(function.body):
        if isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                own.pop(name, None)
    return own


def _parameters(arguments: ast.arguments) -> list[str]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [arg.arg for arg in (*named, arguments.vararg, arguments.kwarg) if arg]
