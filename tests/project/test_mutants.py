"""Planted faults are drawn, planted in memory and told as a table."""

from __future__ import annotations

import gc
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import mutants
from tests.support.mutants_in_memory import fate_of, functions_by_file, patched

SOURCE = b"""
def sign(x):
    def inner(y):
        return y > 0
    return 1 if inner(x) else -1

class Counter:
    def more(self, n):
        return n + 1
"""


def loaded(path: Path) -> Any:
    path.write_bytes(SOURCE)
    spec = importlib.util.spec_from_file_location("planted", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    functions_by_file.cache_clear()
    return module


def test_functions_that_are_there_get_the_changed_code(tmp_path: Path) -> None:
    module = loaded(tmp_path / "planted.py")
    more = module.Counter().more
    gc.freeze()  # as tests do: what is frozen is not found by itself
    for before, after in ((b"y > 0", b"y < 0"), (b"n + 1", b"n - 1")):
        changed = SOURCE.replace(before, after)
        assert patched(tmp_path / "planted.py", SOURCE, changed) == 1
        patched(tmp_path / "planted.py", changed, changed)
    assert more(1) == 0
    patched(tmp_path / "planted.py", SOURCE, SOURCE.replace(b"y > 0", b"y < 0"))
    assert module.sign(2) == -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked")
def test_a_fault_is_of_its_child_alone(tmp_path: Path) -> None:
    module = loaded(tmp_path / "planted.py")
    changed = SOURCE.replace(b"n + 1", b"n - 1")
    nothing = str(tmp_path / "test_nothing.py::test_nothing")
    assert fate_of(tmp_path / "planted.py", SOURCE, changed, [nothing], 20) == "caught"
    assert module.Counter().more(1) == 2


def test_the_table_has_a_row_for_each() -> None:
    planted = [mutants.Mutant(f"cugrad/{name}.py", 3, 0, 5, "a | b", "b") for name in "zyx"]
    text = mutants.table([(mutant, "caught", 3) for mutant in planted])
    assert text.count("\n") == 5 and text.index("cugrad/x.py:3") < text.index("cugrad/z.py:3")
    assert "`a \\| b` to `b`" in text
