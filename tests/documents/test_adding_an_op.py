"""Does what docs/adding-an-op.md says: its row and its sample, and then every test of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import cugrad
from cugrad.autograd.recording.record import recorded
from cugrad.errors import FormulaError
from cugrad.functions.maths.arithmetic import help_of
from cugrad.ops import table
from cugrad.ops.table import ELEMENTWISE, TABLE, Op, raw
from tests.ops import samples, sampling, test_rows_raw, test_rows_recorded
from tests.support import ROOT

pytestmark = pytest.mark.host_only

DOCUMENT = ROOT / "docs" / "adding-an-op.md"


@pytest.fixture
def lines() -> Iterator[list[sampling.Sample]]:
    """The sample lines of the document's op, made again from the document in the op's place."""
    row, sample = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (name,) = re.findall(r'row\("(\w+)"', row)
    known, real_only = (TABLE.pop(name), sampling.LINES.pop(name)), set(samples.REAL_ONLY)
    call = getattr(raw, name)
    vars(recorded).pop(name, None)
    exec(row, vars(table).copy())
    exec(sample, vars(samples))
    yield sampling.LINES[name]
    TABLE[name], sampling.LINES[name] = known
    setattr(raw, name, call)
    vars(recorded).pop(name, None)
    samples.REAL_ONLY = real_only


def properties_of_rows() -> list[Any]:
    """The tests of one line, which `over_lines` calls."""
    return [
        test.__wrapped__
        for module in (test_rows_raw, test_rows_recorded)
        for name, test in vars(module).items()
        if name.startswith("test_")
        and "line" in getattr(test, "__annotations__", {})
        and name != "test_linear_is_true"  # the document's op is elementwise
    ]


@pytest.mark.parametrize("test", properties_of_rows(), ids=lambda test: test.__name__)
def test_the_document_is_true(test: Any, lines: list[sampling.Sample], backend: Any) -> None:
    for line in lines:
        test(line, backend)


def test_the_node_is_named(lines: list[sampling.Sample]) -> None:
    op = TABLE[lines[0].row]
    assert op.name_of_node({}) in DOCUMENT.read_text()
    assert op.saves(3) == ("self", "result", "other")


def test_elementwise_rows_are_public() -> None:
    """As a function, a method and an in-place method, by being a row."""
    for name in [op.name for op in TABLE.values() if op.public]:
        assert callable(getattr(cugrad, name)), name
        assert callable(getattr(cugrad.Tensor, name)) or name in ("real", "imag"), name


def test_a_public_row_says_what_it_computes() -> None:
    assert all(help_of(op) for op in TABLE.values() if op.public)
    with pytest.raises(FormulaError, match="row hypot2: a public function wants doc="):
        help_of(Op("hypot2", "self other", "hypot", ELEMENTWISE))
