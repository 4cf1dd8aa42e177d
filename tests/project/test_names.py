"""A local variable or parameter is called what it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.host_only

# Each says how the function came by a thing, and not what the thing is.
HIDING = {"found", "given", "known", "made", "wanted"}

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda,
          ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


def bound_by(node: ast.AST) -> str | None:
    """The name that a node of a function's tree gives to something."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return node.asname or node.name
    if isinstance(node, (ast.FunctionDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return node.name
    return None


def locals_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of what functions, lambdas and comprehensions bind; not what classes do."""
    nodes: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while nodes:
        node, is_inside = nodes.pop()
        name = bound_by(node) if is_inside else None
        if name is not None:
            yield getattr(node, "lineno", 0), name
        is_inside = isinstance(node, SCOPES) or is_inside and not isinstance(node, ast.ClassDef)
        nodes.extend([(child, is_inside) for child in ast.iter_child_nodes(node)])


def test_a_local_is_called_what_it_holds() -> None:
    paths = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "cugrad").rglob("*.py")}
    wrong = {
        f"{name}:{line}: {local}"
        for name, path in paths.items()
        for line, local in locals_in(path.read_text()) if local in HIDING
    }  # fmt: skip
    assert not wrong, f"{sorted(wrong)}: the noun that it stands for (plan, shape, names, ...)"


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    found = x",
        "def f(x, *, found): pass",
        "def f(x, *found): pass",
        "def f(x):\n    first, (_, found) = x",
        "def f(x):\n    for found in x: pass",
        "def f(x):\n    with x as found: pass",
        "def f(x):\n    try: pass\n    except KeyError as found: pass",
        "def f(x):\n    if (found := x): pass",
        "def f(x):\n    def found(): pass",
        "def f(x):\n    import numpy as found",
        "f = lambda found: 1",
        "y = [1 for found in x]",
        "class A:\n    def f(self):\n        def g(): found = 1",
    ],
)
def test_a_local_is_seen_wherever_it_is_bound(source: str) -> None:
    assert "found" in {name for _, name in locals_in(source)}


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "class A:\n    found: int = 0",
        "def f(x):\n    class A:\n        found: int = 0",
        "def found(x): return x",
        "def f(x):\n    x.found = x.given[found]",
        "def f(x): return g(found=x)",
    ],
)
def test_what_is_no_local_may_have_any_name(source: str) -> None:
    assert "found" not in {name for _, name in locals_in(source)}
