"""Which tests wait for the PyTorch that pyproject.toml pins: what an older one says is not it."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Collection
from typing import Any

import pytest

from tests.support import ROOT


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: `(2, 13)` of "2.13.0+cpu"."""
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])


def too_old() -> str | None:
    """The reason to skip what `pinned_torch` marks; None beside the pinned PyTorch, a newer one,
    or none at all, of which the tests say so themselves.
    """
    try:
        here = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    pinned = re.findall(r'"torch==([^"]+)"', (ROOT / "pyproject.toml").read_text())[0]
    if numbers(here) >= numbers(pinned):
        return None
    return f"compares with PyTorch {pinned}, and {here} is here"


def cases(names: Collection[str], newer: Collection[str]) -> list[Any]:
    """The names as cases of `parametrize`; `newer` are those that only the pinned PyTorch has, or
    answers as we do.
    """
    assert set(newer) <= set(names), "a case that is not there"
    mark = pytest.mark.pinned_torch
    return [pytest.param(name, marks=[mark] if name in newer else []) for name in names]


def skip_module() -> None:
    """For a file whose imports an older PyTorch does not survive."""
    if (reason := too_old()) is not None:
        pytest.skip(reason, allow_module_level=True)
