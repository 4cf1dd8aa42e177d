"""Where a public name is declared in the source, which is where type checkers can see it."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from cugrad.runtime.absent import PUBLIC


@cache
def statements(module: str) -> list[ast.stmt]:
    """What stands at the top of a module's source, and under its `if TYPE_CHECKING`."""
    file = inspect.getsourcefile(importlib.import_module(module))
    assert file is not None
    body: list[ast.stmt] = []
    for node in ast.parse(Path(file).read_text()).body:
        inside = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        body += node.body if isinstance(node, ast.If) and inside else [node]
    return body


@cache
def declared(module: str) -> set[str]:
    """The names that a module's source declares, or imports and lists in `__all__`."""
    names: set[str] = set()
    public = getattr(importlib.import_module(module), "__all__", ())
    for node in statements(module):
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name for a in node.names}.intersection(public)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


def home_of(module: ModuleType, name: str) -> tuple[str, str] | None:
    """The module that declares a name of `module`, and its name there."""
    value = getattr(module, name)
    for node in statements(module.__name__):
        if isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name(
                "." * node.level + (node.module or ""), package_of(module)
            )
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return source, alias.name
    original = inspect.unwrap(value) if callable(value) else value
    for home in (getattr(value, "__module__", ""), getattr(original, "__module__", "")):
        own = getattr(original, "__name__", name)
        if home in sys.modules and home.startswith("cugrad"):
            for each in dict.fromkeys((name, own)):
                if home != module.__name__ and each in declared(home):
                    return home, each
    return None


def package_of(module: ModuleType) -> str:
    return module.__name__ if hasattr(module, "__path__") and is_package(module) else (
        module.__name__.rpartition(".")[0]
    )  # fmt: skip


def is_package(module: ModuleType) -> bool:
    return Path(module.__file__ or "").name == "__init__.py"


def public(module: ModuleType) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]


def is_public_module(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.removeprefix("cugrad.") in PUBLIC
