"""Functions of lists of tensors, choices and checks, and operators of bits in place."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.functions import foreach
from tests.support.pinned_torch import cases

SHAPES = [(2, 3), (4,), ()]
NUMBERS = {"lerp": [0.25], "addcmul": [0.5], "addcdiv": [0.5]}


def lists(library: Any, seed: int) -> list[Any]:
    draws = np.random.default_rng(seed)
    return [library.tensor(draws.uniform(0.2, 0.9, s), dtype=library.float64) for s in SHAPES]


def calls(name: str) -> list[list[Any]]:
    """The arguments behind the first list: numbers of lists to make, and numbers."""
    base = name.removeprefix("_foreach_").rstrip("_")
    if base in ("addcmul", "addcdiv"):
        return [[[1], [2], 0.5], [[1], [2], (0.5, 2.0, 3.0)], [[1], [2]]]
    if base == "lerp":
        return [[[1], 0.25], [[1], [2]]]
    if base in ("copy", "maximum", "minimum"):
        return [[[1]]]
    if base == "norm":
        return [[], [1]]
    return [[[1]], [2.5], [(0.5, 2.0, 3.0)]] if base in foreach.BINARY else [[]]


def outcome(library: Any, name: str, rest: list[Any]) -> list[Any]:
    first = lists(library, 0)
    more = [lists(library, r[0]) if isinstance(r, list) else r for r in rest]
    result = getattr(library, name)(first, *more)
    assert result is first if name.endswith("_") else type(result) is tuple
    return [x.numpy() for x in result]


@pytest.mark.parametrize("name", cases(foreach.NAMES, ["_foreach_clone"]))
def test_a_list_beside_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    for rest in calls(name):
        for mine, theirs in zip(outcome(cugrad, name, rest), outcome(torch, name, rest)):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_numbers_in_a_tensor(name: str) -> None:
    torch = pytest.importorskip("torch")
    results = []
    for t in (cugrad, torch):
        operands = [lists(t, seed) for seed in range(3)]
        values = t.tensor([0.5, 2.0, 3.0])
        results.append([x.numpy() for x in getattr(t, f"_foreach_{name}")(*operands, values)])
        getattr(t, f"_foreach_{name}_")(*operands, values)
        results[-1] += [x.numpy() for x in operands[0]]
    for mine, theirs in zip(*results):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    with pytest.raises(RuntimeError, match=r"a tensor of 3 numbers.*got one of shape \[2\]"):
        cugrad._foreach_addcmul(*[lists(cugrad, 0)] * 3, cugrad.ones(2))


def test_results_of_a_checkpoint_are_followed() -> None:
    """A reentrant checkpoint follows what a function returns in a tuple, not in a list."""
    x = cugrad.ones(2, requires_grad=True)
    (y,) = cugrad.utils.checkpoint.checkpoint(
        lambda x: cugrad._foreach_mul([x], 3.0), x, use_reentrant=True
    )
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("name", ["add", "mul_", "norm", "max", "copy_", "pow", "sqrt", "zero_"])
def test_a_list_of_nothing(name: str) -> None:
    torch = pytest.importorskip("torch")
    rest = {"add": [1.0], "mul_": [[]], "copy_": [[]], "pow": [2.0]}.get(name, [])
    for t in (cugrad, torch):
        with pytest.raises(RuntimeError, match="^Tensor list must have at least one tensor.$"):
            getattr(t, f"_foreach_{name}")([], *rest)


def test_lists_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="must have the same number of tensors, got 3 and 2"):
        cugrad._foreach_add_(lists(cugrad, 0), lists(cugrad, 1)[:2])
    with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
        cugrad._foreach_add(cugrad.ones(2), 1)
    with pytest.raises(AttributeError, match="'cugrad' has no attribute '_foreach_nothing'"):
        cugrad._foreach_nothing  # noqa: B018
    x = [cugrad.ones(2)]
    cugrad._foreach_add_(x, [cugrad.ones(2)], alpha=3)
    cugrad._foreach_lerp_(x, [cugrad.zeros(2)], weight=0.5)
    assert x[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["iand", "ior", "ixor", "ilshift", "irshift"])
def test_operators_of_bits_change_in_place(name: str) -> None:
    torch = pytest.importorskip("torch")
    for library in (cugrad, torch):
        x = view = library.tensor([1, 2, 12])
        x = getattr(operator, name)(x, library.tensor([1, 3, 2]))
        assert x is view, library
    assert x.tolist() == torch.tensor(view.tolist()).tolist()


def test_choices_and_checks() -> None:
    x = cugrad.ones(2, requires_grad=True)
    cugrad.cond(x.sum() > 1, lambda x: x.sum() * 2, lambda x: x.sum(), (x,)).backward()
    assert x.grad.tolist() == [2.0, 2.0]
    (n,) = cugrad.while_loop(lambda n: n < 5, lambda n: n + 2, (cugrad.tensor(0),))
    assert int(n) == 6
    with pytest.raises(RuntimeError, match="single-element tensor"):
        cugrad.cond(cugrad.ones(2), abs, abs, ())
    cugrad._check(True)
    with pytest.raises(RuntimeError, match="^too small$"):
        cugrad._check(False, lambda: "too small")
    with pytest.raises(RuntimeError, match="nonzero"):
        cugrad._assert_async(cugrad.tensor(0))
    assert cugrad._shape_as_tensor(cugrad.ones(2, 3)).tolist() == [2, 3]
