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


@pytest.mark.parametrize("space", cases(["cugrad", "torch"], ["torch"]))
def test_classes_behind_module_get_its_arguments(space: str) -> None:
    nn = pytest.importorskip(space).nn

    class Behind:
        def __init__(self, a: int, b: int = 0) -> None:
            self.a, self.b = a, b

    class Both(nn.Module, Behind):
        call_super_init = True

        def __init__(self) -> None:
            super().__init__(5, b=6)
            self.layer = nn.Linear(2, 2)

    both = Both()
    assert (both.a, both.b, len(list(both.parameters()))) == (5, 6, 2)

    class Alone(nn.Module, Behind):
        def __init__(self, *args: int, **kwargs: int) -> None:
            super().__init__(*args, **kwargs)

    with pytest.raises(TypeError, match="takes 1 positional argument but 3 were given"):
        Alone(5, 6)
    with pytest.raises(TypeError, match="unexpected keyword argument 'a'"):
        Alone(a=5)
    assert not hasattr(Alone(), "a") and nn.Module.dump_patches is False


@pytest.mark.parametrize("dims", [None, 2, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_masks_of_attention_are_merged(dims: int | None, padded: bool) -> None:
    torch = pytest.importorskip("torch")
    results = []
    for lib in (cugrad, torch):
        layer, query = lib.nn.MultiheadAttention(4, 2), lib.zeros(3, 5, 4)
        whole = lib.arange(150.0).reshape(6, 5, 5)
        mask = None if dims is None else whole if dims == 3 else whole[0]
        padding = lib.arange(15.0).reshape(3, 5) if padded else None
        merged, kind = layer.merge_masks(mask, padding, query)
        results.append((None if merged is None else merged.tolist(), kind))
    assert results[0] == results[1]
