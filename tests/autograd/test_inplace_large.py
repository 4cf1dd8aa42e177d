"""Large tensors are changed where they lie: the same values and gradients, and no second array."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd.recording.texts.changes import FEW
from cugrad.ops.table import ELEMENTWISE, TABLE

N = FEW + 3


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape or N).astype(np.float32)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
@pytest.mark.parametrize("other", ["tensor", "number", "0-d"])
def test_values_and_gradients_are_those_of_the_ordinary_op(name: str, other: str) -> None:
    a = cugrad.tensor(normal(0), requires_grad=True, device="cpu")
    value: Any = {"tensor": normal(1), "number": 3.0, "0-d": np.float32(3)}[other]
    if other != "number":
        value = cugrad.tensor(value, requires_grad=True, device="cpu")
    x = a * 2
    y = getattr(a * 2, name.rstrip("_"))(value)
    assert getattr(x, name)(value) is x
    assert cugrad.equal(x, y)
    assert x._version == 1
    inputs = [a] if other == "number" else [a, value]
    for got, wanted in zip(cugrad.autograd.grad(x.sum(), inputs),
                           cugrad.autograd.grad(y.sum(), inputs), strict=True):  # fmt: skip
        assert cugrad.equal(got, wanted)


def test_an_operand_that_overlaps_is_read_before_it_is_written() -> None:
    data = normal(2, 2 * N)
    x = cugrad.tensor(data, device="cpu")
    x[:N].add_(x[1 : N + 1])
    assert np.array_equal(x[:N].numpy(), data[:N] + data[1 : N + 1])
    x = cugrad.tensor(data[:N], device="cpu")
    x.mul_(x)
    assert np.array_equal(x.numpy(), data[:N] * data[:N])


def test_no_second_array_is_made() -> None:
    x, y = (cugrad.tensor(normal(seed, 1 << 20), device="cpu") for seed in (3, 4))
    tracemalloc.start()
    try:
        x.add_(y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 4


def test_a_wrong_operand_changes_nothing() -> None:
    x = cugrad.tensor(normal(5), device="cpu")
    before = x.clone()
    with pytest.raises(RuntimeError, match="must match the size"):
        x.add_(cugrad.ones(N + 1, device="cpu"))
    with pytest.raises(RuntimeError, match="broadcast shape"):
        x.add_(cugrad.ones(2, N, device="cpu"))
    assert cugrad.equal(x, before)
    assert x._version == 0


NAMED = sorted(op.name for op in TABLE.values() if op.ufunc and op.kind == ELEMENTWISE
               and len(op.inputs) == 1 and hasattr(cugrad.Tensor, op.name + "_"))  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_functions_of_one_tensor_are_written_where_it_lies(name: str, device: Any) -> None:
    x = cugrad.tensor(np.abs(normal(6)) / 8 + 1, device=device)
    want = getattr(x, name)()
    if want.dtype is x.dtype:
        array = x._array
        assert getattr(x, name + "_")() is x
        assert x._array is array
        # on CUDA a row's kernel and CuPy's function may differ in the last place
        np.testing.assert_allclose(x.cpu().numpy(), want.cpu().numpy(), rtol=1e-6, atol=1e-6)
