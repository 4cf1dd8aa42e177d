"""Checks that what nn offers takes PyTorch's arguments: names, kinds, defaults."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import cugrad
from tests.support.pinned_torch import cases

SPACES = ["nn", "nn.init", "nn.functional", "nn.grad", "nn.utils", "nn.utils.rnn",
          "nn.utils.prune", "nn.utils.parametrize", "nn.utils.parametrizations"]  # fmt: skip
MORE = {"keep_bits", "return_indices"}  # arguments that PyTorch lacks
FEWER = {"return_indices"}  # of a pool that returns them


def arguments(function: Any, without: set[str]) -> dict[str, Any] | None:
    """Name -> (is it by name only, default); None for those that take anything, or do not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return None
    named = [p for p in parameters if p.name not in without]
    defaults = [None if callable(p.default) else p.default for p in named]
    return dict(zip([p.name for p in named], defaults, strict=True))


@pytest.mark.parametrize("space", cases(SPACES, ["nn"]))
def test_arguments_are_pytorchs(space: str) -> None:
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    theirs = importlib.import_module(f"torch.{space}")
    ours = importlib.import_module(f"cugrad.{space}")
    compared = 0
    for name, value in vars(theirs).items():
        home = str(getattr(value, "__module__", ""))
        if name.startswith("_") or not callable(value) or not home.startswith("torch.nn"):
            continue
        twin = getattr(ours, name, None)
        expected, actual = arguments(value, FEWER), arguments(twin, MORE)
        if twin is None or expected is None or actual is None:
            continue
        compared += 1
        assert list(actual) == list(expected), name
        for argument, default in expected.items():
            if isinstance(default, (bool, int, float, str, type(None))):
                assert actual[argument] == default, (name, argument)
    assert compared >= 3


def test_losses_take_the_old_names_of_a_reduction() -> None:
    x, y = cugrad.tensor([1.0, 2.0]), cugrad.tensor([0.0, 0.0])
    for lib_call in (
        lambda **how: cugrad.nn.functional.mse_loss(x, y, **how),
        lambda **how: cugrad.nn.MSELoss(**how)(x, y),
    ):
        with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
            assert lib_call(size_average=False).item() == 5
        with pytest.warns(UserWarning, match="please use reduction='none' instead"):
            assert lib_call(reduce=False).tolist() == [1, 4]
        with pytest.warns(UserWarning, match="please use reduction='mean' instead"):
            assert lib_call(size_average=True).item() == 2.5
