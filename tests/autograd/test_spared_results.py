"""Results that a node saves where PyTorch's saves the input may be changed in place, as there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.ops.table import TABLE

ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "leaky_relu": lambda lib, x: lib.nn.functional.leaky_relu(x, 0.2),
    "hardtanh": lambda lib, x: lib.nn.functional.hardtanh(x),
    "relu6": lambda lib, x: lib.nn.functional.relu6(x * 5),
    "hardsigmoid": lambda lib, x: lib.nn.functional.hardsigmoid(x * 2),
    "hardshrink": lambda lib, x: lib.nn.functional.hardshrink(x),
    "softshrink": lambda lib, x: lib.nn.functional.softshrink(x),
    "erfinv": lambda lib, x: (x / 3).erfinv(),
    "in place": lambda lib, x: lib.nn.functional.hardtanh(x * 1, inplace=True),
    "in place in a part": lambda lib, x: of_part(lib, x * 1),
}


def of_part(lib: Any, y: Any) -> Any:
    lib.nn.functional.hardtanh(y[1:], inplace=True)
    return y


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda lib, y: y.mul_(3),
    "add_": lambda lib, y: y.add_(y.detach().flip(0)),
    "masked_fill_": lambda lib, y: y.masked_fill_(lib.arange(12).reshape(4, 3) % 2 == 0, -2.0),
    "y[1:] *= 2": lambda lib, y: y[1:].mul_(2),
    "y.T[0] = 5": lambda lib, y: y.T.__setitem__(0, 5.0),
    "relu_": lambda lib, y: y.relu_(),
    "dropout": lambda lib, y: lib.nn.functional.dropout(y, 0.0, inplace=True),
    "twice": lambda lib, y: y.sub_(1).mul_(y.detach() + 2).neg_(),
    "zero_": lambda lib, y: y.zero_(),
    "foreach": lambda lib, y: lib._foreach_mul_([y], 2.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_change_of_the_result(lib: Any, name: str, change: str, recorded: bool) -> None:
    """The gradient is that of a copy that was changed, of any order."""
    found = []
    for copied in (True, False):
        x = lib.linspace(-2, 2, 12, dtype=lib.float64).reshape(4, 3).requires_grad_()
        y = ACTIVATIONS[name](lib, x)
        z = y.clone() if copied else y
        if recorded:
            CHANGES[change](lib, z)
            loss = (z * z).sum() + (x * x).sum()
        else:
            loss = (y * 2).sum() + (x * x).sum()
            with lib.no_grad():
                CHANGES[change](lib, z)
        (g,) = lib.autograd.grad(loss, x, create_graph=True)
        twice = name != "hardsigmoid" or lib is cugrad  # PyTorch has no second derivative of it
        found.append(
            [g.tolist(), lib.autograd.grad(g.sum(), x)[0].tolist() if twice else []][: 1 + twice]
        )
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_every_row_that_is_spared_saves_its_result() -> None:
    rows = {op.name for op in TABLE.values() if op.spared}
    assert rows == {
        "leaky_relu", "hardtanh", "hardsigmoid", "hardshrink", "softshrink", "erfinv",
    }  # fmt: skip
    assert all("result" in TABLE[name].saves(1) for name in rows)


@pytest.mark.parametrize("context", ["plain", "hooks", "checkpoint", "retained", "small"])
def test_what_is_spared_is_so_in_contexts(context: str, device: str) -> None:
    """Hooks have their own copy; a graph that was freed, or that ran once, is not looked at."""
    x = cugrad.linspace(-1, 1, 6, device=device).requires_grad_()

    def run(x: Any) -> Any:
        return cugrad.nn.functional.leaky_relu(x, 0.5).mul_(2)

    if context == "hooks":
        with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = run(x)
    elif context == "checkpoint":
        y = cugrad.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
    elif context == "small":
        with cugrad.memory.offload():
            y = run(x)
    else:
        y = run(x)
    y.sum().backward(retain_graph=context == "retained")
    with cugrad.no_grad():
        y.mul_(2)
    if context == "retained":
        y.sum().backward()
    want = [1, 1, 1, 2, 2, 2]
    assert x.grad.tolist() == [n * (1 + (context == "retained")) for n in want]
