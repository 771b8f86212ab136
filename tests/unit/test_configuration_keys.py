"""Every key of the configuration has an effect: a rule or a script reads it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from scripts.anatomy.configuration import Config

ROOT = Path(__file__).parents[2]
Read = tuple[str, str]  # a class of settings and a key, or "" and a key where the class is unknown


def settings_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the classes of settings in an annotation, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from settings_in(part)


def settings_classes() -> dict[str, type[BaseModel]]:
    """Return all classes of settings by name."""
    classes, waiting = {}, [Config]
    while waiting:
        model = waiting.pop()
        if model.__name__ not in classes:
            classes[model.__name__] = model
            for field in model.model_fields.values():
                waiting += settings_in(field.annotation)
    return classes


CLASSES = settings_classes()
# Keys that are read in another way than as an attribute
EXCEPTIONS = {
    "kind": "pydantic chooses the class by it",
    "max_steps": "VariantStudySettings lowers the steps of every training to it",
    "released_compat": "TopicVariantSettings expands it",
    "learning_rates": "pretraining/tune.py reads a params dictionary",
    **dict.fromkeys(
        ["passes", "chunksize", "offset", "decay", "iterations"],
        "text/lda.py passes them to gensim",
    ),
    **dict.fromkeys(
        [key for name in CLASSES if "Figure" in name for key in CLASSES[name].model_fields],
        "rules make a figure of every key",
    ),
}


class Reads(ast.NodeVisitor):
    """Collect the keys that code reads, with their class where annotations tell it.

    The type of an expression is a list of classes of settings: empty if it is something else, None
    if it is unknown.
    """

    def __init__(self) -> None:
        self.reads: set[Read] = set()
        self.types: dict[str, list[str] | None] = {}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self.types = self.types, self.types | {"self": self._subclasses(node.name)}
        self.generic_visit(node)
        self.types = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        annotated = {a.arg: self._annotated(a.annotation) for a in arguments if a.annotation}
        outer, self.types = self.types, self.types | annotated
        for child in node.body:
            self.visit(child)
        self.types = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.types[target.id] = self._type(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        owners = self._type(node.value)
        self.reads |= {(owner, node.attr) for owner in ([""] if owners is None else owners)}

    @staticmethod
    def _subclasses(name: str) -> list[str]:
        return [c for c, model in CLASSES.items() if name in [m.__name__ for m in model.__mro__]]

    def _annotated(self, annotation: ast.expr) -> list[str] | None:
        names = re.findall(r"\w+", ast.unparse(annotation))
        return [c for name in names for c in self._subclasses(name)] or None

    def _type(self, node: ast.expr) -> list[str] | None:
        match node:
            case ast.Name(id=name):
                return self.types.get(name)
            case ast.Attribute(value=value, attr=attr):
                owners = self._type(value)
                if owners is None:
                    return None
                fields = [f[attr] for o in owners if attr in (f := CLASSES[o].model_fields)]
                inside = [m for field in fields for m in settings_in(field.annotation)]
                return [m.__name__ for m in inside] if fields or not owners else None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="model_validate")):
                return self._subclasses(name)
            case ast.Call(func=ast.Name(id=name)) if name[0].isupper():
                return self._subclasses(name)
            case ast.Subscript(value=value):
                return self._type(value)
        return None


def keys_read() -> set[Read]:
    """Return what scripts and the library read, and every attribute that rules name."""
    reader = Reads()
    for path in (ROOT / "scripts").rglob("*.py"):
        reader.types = {}
        reader.visit(ast.parse(path.read_text(encoding="utf-8")))
    rules = "\n".join(path.read_text("utf-8") for path in (ROOT / "rules").glob("*.smk"))
    return reader.reads | {("", name) for name in re.findall(r"(?<=[\w\])])\.(\w+)", rules)}


@pytest.fixture(scope="module")
def reads() -> set[Read]:
    return keys_read()


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_key_is_read(name: str, reads: set[Read]) -> None:
    unread = [
        key
        for key in CLASSES[name].model_fields
        if key not in EXCEPTIONS and not {(name, key), ("", key)} & reads
    ]
    assert unread == []
