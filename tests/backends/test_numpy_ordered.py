"""Half precision compared, bounded and turned round by integers is as in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad.backends import get
from cugrad.backends.numpy import half, rows
from cugrad.backends.numpy.written import registry
from cugrad.dtypes import bfloat16
from cugrad.ops.table import TABLE

Array = np.ndarray[Any, Any]
KINDS = {"float16": np.dtype(np.float16), "bfloat16": bfloat16.numpy}
EXTREMES = {"maximum": np.maximum, "minimum": np.minimum}
ORDERS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LEAST", 1)
    rows.forward_of(TABLE["neg"], get("cpu").xp)  # has all that is written read


def every(kind: Any) -> Array:
    """All numbers of a dtype but nan, in no order, 254 rows of as many columns."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(kind)
    numbers = np.random.default_rng(0).permutation(numbers[~np.isnan(numbers.astype(np.float32))])
    side = int(numbers.size**0.5)
    return numbers[: side * side].reshape(side, side)


def run(name: str, *args: Any, **params: Any) -> Any:
    return rows.forward_of(TABLE[name], get("cpu").xp)(*args, **params)


def written(name: str, *args: Any) -> Any:
    return registry.FORWARDS[name](*args)


def wide(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) else x


def assert_same(got: Any, want: Any, kind: Any) -> None:
    assert got.dtype == kind
    np.testing.assert_array_equal(wide(got), want)


@kinds
def test_extremes_of_two(kind: Any) -> None:
    x = every(kind)
    for name, function in EXTREMES.items():
        for other in (x.T.copy(), x.T, x[0], x[:, :1], x[::-1, ::-1]):
            assert_same(written(name, x, other), function(wide(x), wide(other)), kind)
        for number in (0.0, -2, 1e-3, float("-inf")):
            want = function(wide(x), wide(np.asarray(number, kind)))
            assert_same(written(name, x, number), want, kind)
            assert_same(written(name, number, x), want, kind)


@kinds
def test_bounds(kind: Any) -> None:
    x = every(kind)
    for low, high in ((-1, 1.5), (None, 0.1), (-0.3, None), (2.0, -2.0), (-float("inf"), 0.0)):
        ends = [None if n is None else wide(np.asarray(n, kind)) for n in (low, high)]
        want = np.clip(wide(x), *ends)
        assert_same(written("clamp", x, low, high), want, kind)
        if low is not None and high is not None:
            assert_same(written("hardtanh", x, low, high), want, kind)


@kinds
def test_extremes_along_dims(kind: Any) -> None:
    x = every(kind)
    for name, function in (("amax", np.max), ("amin", np.min), ("max_all", np.max)):
        for dim in (None, 0, (1,), (0, 1)):
            for keepdim in (False, True):
                want = function(wide(x), dim, keepdims=keepdim)
                assert_same(written(name, x, dim, keepdim), want, kind)


@kinds
def test_signs(kind: Any) -> None:
    x = every(kind)
    for each in (x, x.T, x[:, ::3]):
        assert_same(written("neg", each), -wide(each), kind)
        assert_same(written("abs", each), abs(wide(each)), kind)
    assert np.signbit(wide(written("neg", np.zeros(3, kind)))).all()


def test_comparisons_of_float16() -> None:
    x = every(KINDS["float16"])
    for name, function in ORDERS.items():
        for other in (x.T.copy(), x[0], 0.1, -2):
            rounded = np.float32(np.float16(other)) if isinstance(other, (float, int)) else other
            np.testing.assert_array_equal(written(name, x, other), function(wide(x), wide(rounded)))


@kinds
def test_nan_is_left_to_numpy(kind: Any) -> None:
    x = every(kind)
    broken = x.copy()
    broken[3, 4] = -np.nan
    for name in EXTREMES:
        for args in ((x, broken), (broken, x), (x, float("nan"))):
            assert written(name, *args) is None
        assert np.isnan(wide(run(name, x, broken))[3, 4])
    assert written("clamp", broken, 0.0) is None and written("clamp", x, None, np.nan) is None
    assert written("amax", broken) is None
    with np.errstate(all="ignore"):
        assert np.isnan(wide(run("amax", broken)))
    assert np.isnan(wide(written("neg", broken))[3, 4])
    assert written("maximum", x, x.astype(np.float32)) is None
    assert written("lt", x.astype(np.float32), x) is None


def test_other_operands_do_not_pass_through() -> None:
    for name in registry.OF_HALVES:
        op = TABLE[name]
        forward = rows.forward_of(op, get("cpu").xp)
        assert forward.wide is not forward
        x = np.linspace(-2, 2, 12, dtype=np.float32)
        operands = [x, x[::-1].copy()][: len(op.inputs)]
        params = {"max": 1.0} if name == "clamp" else {}
        with np.errstate(all="raise"):
            got, want = forward(*operands, **params), forward.wide(*operands, **params)
        np.testing.assert_array_equal(got, want)


def test_casts_from_and_to_float16_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        for dtype in (bool, np.int8, np.uint8, np.int16, np.int32, np.int64):
            x = rng.integers(0, 1 << 7, 5000).astype(dtype)
            if dtype in (np.int32, np.int64):
                x = np.concatenate([x, -x * 700, np.arange(65000, 66000), [1 << 30]]).astype(dtype)
            got = half.cast(x, half.HALF)
            assert got.dtype == half.HALF
            np.testing.assert_array_equal(got, x.astype(np.float16))
        every_finite = every(KINDS["float16"])
        every_finite = every_finite[np.isfinite(every_finite)]
        for whole in (np.int32, np.int64):
            got = half.cast(every_finite, np.dtype(whole))
            assert got.dtype == whole
            np.testing.assert_array_equal(got, every_finite.astype(whole))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_copy_is_cast_and_a_row_beside_a_matrix_is_widened_once(dtype: Any) -> None:
    x = torch.linspace(-3, 3, 600, dtype=torch.float32).reshape(20, 30)
    target = torch.zeros(20, 30, dtype=dtype)
    assert (target.copy_(x) == x.to(dtype)).all() and target.copy_(x[0]).equal(
        x[0].to(dtype).expand(20, 30)
    )
    matrix = x.to(dtype)
    for other in (matrix[0], matrix[:, :1], matrix[:1]):
        want = (matrix.float() * other.float()).to(dtype)
        product = matrix * other
        assert product.equal(want) and product.is_contiguous()
    mixed = matrix + x
    assert mixed.dtype is torch.float32 and mixed.equal(matrix.float() + x)
