"""Functions that NumPy lacks, or is slow at, are as exact as they say, all over their range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cugrad.backends import get
from cugrad.backends.numpy import erf, exponential

NUMBERS = np.concatenate([np.linspace(-30, 30, 20_001), [0.0, -0.0, 1e-30, 1e20, -1e20]])
single = NUMBERS.astype(np.float32)
exact = single.astype(np.float64)


def of_doubles(function: Any) -> Any:
    return np.array([function(x) for x in exact.tolist()])


def test_the_error_function() -> None:
    with np.errstate(over="ignore"):
        got, want = erf.erf_float32(single), of_doubles(math.erf)
    np.testing.assert_allclose(got, want, rtol=4e-7, atol=1e-36)


def test_the_normal_distribution() -> None:
    with np.errstate(over="ignore"):
        got = erf.normal_cdf_float32(single)
    want = of_doubles(lambda x: math.erfc(-x / math.sqrt(2)) / 2)
    np.testing.assert_allclose(got, want, rtol=0, atol=1.2e-7)
    near = abs(exact) < 3  # out there it is as far from 0 as PyTorch's, whose erf is rounded
    np.testing.assert_allclose(got[near], want[near], rtol=2e-5)
    ends = np.array([-np.inf, np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(erf.normal_cdf_float32(ends), [0, 1, np.nan])


@pytest.mark.parametrize("powers, scale", [(np.exp2, math.log2(math.e)), (np.exp, 1.0)])
@pytest.mark.parametrize("factor", [1.0, -1, -0.5])
def test_powers(powers: Any, scale: float, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponential, "powers", powers)
    monkeypatch.setattr(exponential, "SCALE", scale)
    some = abs(exact * factor) < 20
    got = exponential.quick_exp(single[some], factor)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.exp(exact[some] * factor), rtol=2e-6)
    ends = np.array([-np.inf, 0, np.inf, np.nan], np.float32)
    want = [0, 1, np.inf, np.nan] if factor > 0 else [np.inf, 1, 0, np.nan]
    np.testing.assert_array_equal(exponential.quick_exp(ends, factor), want)
    np.testing.assert_array_equal(exponential.quick_exp(exact[some]), np.exp(exact[some]))
    out = single[some].copy()
    assert exponential.quick_exp(out, factor, out) is out
    np.testing.assert_array_equal(out, got)


@pytest.mark.parametrize("shape", [(1 << 17,), (300, 401), (2, 1 << 16), ((1 << 16) + 5,)])
def test_sums_of_all_elements_are_those_of_doubles(shape: tuple[int, ...]) -> None:
    xp = get("cpu").xp
    x = np.random.default_rng(0).random(shape, np.float32)
    for axis in (None, tuple(range(len(shape)))):
        for keepdims in (False, True):
            for function in ("sum", "mean"):
                want = getattr(x.astype(np.float64), function)(axis, keepdims=keepdims)
                got = np.asarray(getattr(xp, function)(x, axis=axis, keepdims=keepdims))
                assert (got.dtype, got.shape) == (np.float32, np.shape(want))
                np.testing.assert_allclose(got, want, rtol=3e-7)
    x[..., -1] = np.inf
    assert xp.sum(x) == np.inf
    x[..., 0] = -np.inf
    with np.errstate(invalid="ignore"):
        assert np.isnan(xp.sum(x))
