"""`eval("torch." + repr(x))` is x: every dtype and shape, nan, inf and empty ones among them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import dtypes

hypothesis = pytest.importorskip("hypothesis")
hnp = pytest.importorskip("hypothesis.extra.numpy")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

DTYPES = [*dtypes.ALL, *dtypes.LIMITED]


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    cugrad.set_printoptions(profile="default")


def read(x: Any) -> Any:
    return eval("torch." + repr(x), {"torch": cugrad, "nan": nan, "inf": inf})


def same(x: Any, y: Any) -> None:
    assert y.dtype is x.dtype and y.shape == x.shape and y.requires_grad == x.requires_grad
    assert y.device == x.device
    got, want = np.asarray(y.detach().cpu().tolist()), np.asarray(x.detach().cpu().tolist())
    np.testing.assert_array_equal(got, want)


def elements(dtype: dtypes.dtype) -> Any:
    if dtype.is_complex:
        part = elements(dtype.to_real())
        return st.builds(complex, part.filter(np.isfinite), part.filter(np.isfinite))
    if dtype.is_floating_point:
        width = {"float64": 64, "float32": 32}.get(dtype.name, 16)
        return st.floats(width=width)
    if dtype is dtypes.bool_:
        return st.booleans()
    bits = 8 * dtype.itemsize
    low = -(2 ** (bits - 1)) if dtype.is_signed else 0
    return st.integers(low, low + 2**bits - 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_all_digits(dtype: dtypes.dtype, data: Any) -> None:
    cugrad.set_printoptions(precision=17, threshold=10**6, sci_mode=True)
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    count = int(np.prod(shape))
    values = data.draw(st.lists(elements(dtype), min_size=count, max_size=count))
    x = cugrad.tensor(values, dtype=dtype).reshape(shape)
    if dtype.is_floating_point or dtype.is_complex:
        x.requires_grad_(data.draw(st.booleans()))
    same(x, read(x))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (2, 3), (2, 1, 2), (30,), (7, 9)])
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_default_options(dtype: dtypes.dtype, shape: tuple[int, ...]) -> None:
    """Numbers of few digits need no options."""
    count = int(np.prod(shape))
    values = [i % 2 if dtype is dtypes.bool_ else (i % 16) / 4 for i in range(count)]
    x = cugrad.tensor(values).reshape(shape).to(dtype)
    if dtype.is_complex:
        x = x * (1 - 0.5j)
    same(x, read(x))


def test_devices_and_defaults() -> None:
    same(x := cugrad.ones(2, device="simulated", dtype=cugrad.float16), read(x))
    cugrad.set_default_dtype(cugrad.float64)
    try:
        same(x := cugrad.ones(2, dtype=cugrad.float32), read(x))
        same(x := cugrad.ones(0, 2), read(x))
    finally:
        cugrad.set_default_dtype(cugrad.float32)


def test_nan_and_inf() -> None:
    same(x := cugrad.tensor([nan, inf, -inf, 1.5], requires_grad=True), read(x))


def test_sizes_are_of_nothing() -> None:
    assert cugrad.tensor([], size=(2, 0)).shape == (2, 0)
    with pytest.raises(ValueError, match="reshape"):
        cugrad.tensor([1, 2], size=(3,))
