"""docs/ops.md is what the op table says today."""

from __future__ import annotations

import re

import pytest

from tests.documents import ops_page


def without_dtypes(text: str) -> list[str]:
    """The lines without the column that depends on whether ml_dtypes and SciPy are installed."""
    return [re.sub(r"\| [hbfdFDi?]* \|", "| |", line) for line in text.splitlines()]


def test_page_is_up_to_date() -> None:
    pytest.importorskip("scipy", reason="SciPy, which has the special functions, is absent")
    written, now = ops_page.PAGE.read_text(), ops_page.page()
    said = "run: python -m tests.documents.ops_page --write"
    assert without_dtypes(written) == without_dtypes(now), said


def test_breadth() -> None:
    """The promise of at least 400 public functions and methods."""
    names = ops_page.public_names()
    assert sum(map(len, names.values())) >= 400
    assert len(set().union(*map(set, names.values()))) >= 400
