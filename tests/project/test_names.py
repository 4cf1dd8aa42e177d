"""A local variable or parameter is called what it holds."""

from __future__ import annotations

import symtable
from collections.abc import Iterator

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.host_only

# Each says how the function came by a thing, and not what the thing is.
HIDING = {"found", "given", "known", "made", "wanted"}


def locals_in(source: str) -> Iterator[tuple[int, str]]:
    """What functions, lambdas and comprehensions bind, not what classes do: a name, and the line
    where the function begins.
    """
    tables = [symtable.symtable(source, "", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        if table.get_type() == "function":
            for symbol in table.get_symbols():
                if symbol.is_assigned() or symbol.is_parameter() or symbol.is_imported():
                    yield table.get_lineno(), symbol.get_name()


def test_a_local_is_called_what_it_holds() -> None:
    paths = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "cugrad").rglob("*.py")}
    texts = {name: path.read_text() for name, path in paths.items()}
    wrong = {
        f"{name}:{line}: {local}"
        for name, text in texts.items() if any(word in text for word in HIDING)
        for line, local in locals_in(text) if local in HIDING
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
