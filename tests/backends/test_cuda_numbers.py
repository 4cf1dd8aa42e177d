"""Dtypes and values that CuPy alone would have otherwise, on every device: what PyTorch has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.ops.table import TABLE
from tests.conftest import usable_devices
from tests.ops import samples
from tests.ops.row_cases import HOST, Call, is_array
from tests.ops.sampling import LINES

DEVICE = usable_devices()[-1]  # CUDA, where it is to be had
HALVES = ("bfloat16", "float16")
ROWS = [name for name in LINES if name in TABLE and name not in samples.NO_HALF]


@pytest.mark.parametrize("name", ROWS)
def test_halves_stay_halves(name: str) -> None:
    """Results are of the dtype that they have on the CPU, which is compared with PyTorch."""
    for line in LINES[name][:1]:
        for dtype in HALVES:
            case = replace(line, dtype=dtype, variant=dtype)
            try:
                wanted = Call(case, HOST).results
            except (TypeError, RuntimeError, NotImplementedError, ValueError):
                continue  # the CPU has no such function of halves
            found = Call(case, backends.get(DEVICE)).results
            assert [x.dtype for x in found if is_array(x)] == [
                x.dtype for x in wanted if is_array(x)
            ], dtype


def test_truth_of_complex_numbers(device: str) -> None:
    values = np.array([0, 1, 1j, 0.0 - 0.0j, complex("nan")])
    x, y = cugrad.tensor(values, device=device), cugrad.tensor(values[::-1].copy(), device=device)
    for name in ("logical_and", "logical_or", "logical_xor"):
        assert getattr(x, name)(y).tolist() == getattr(np, name)(values, values[::-1]).tolist()
        assert getattr(x, name)(x.real).tolist() == getattr(np, name)(values, values.real).tolist()
    assert x.logical_not().tolist() == np.logical_not(values).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_remainders_are_exact(device: str, dtype: str) -> None:
    """Of infinite divisors, large quotients, and quotients that rounding makes whole."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch says what is right")
    a = [5.0, -5.0, 0.0, -0.0, 1.0, 3.3e4, -3.3e4, 7.0, float("inf"), float("nan"), 2.0, -6.0]
    b = [0.1, float("inf"), float("-inf"), 3.0, -3.0, 0.7, 0.0, float("nan"), 2.0]
    grid = np.array([(x, y) for x in a for y in b])
    for name in ("remainder", "floor_divide", "fmod"):
        theirs = [torch.tensor(grid[:, i]).to(getattr(torch, dtype)) for i in (0, 1)]
        ours = [cugrad.tensor(grid[:, i], device=device).to(getattr(cugrad, dtype)) for i in (0, 1)]
        wanted, found = getattr(torch, name)(*theirs), getattr(cugrad, name)(*ours)
        assert str(found.dtype) == str(wanted.dtype)
        assert found.tolist() == pytest.approx(wanted.tolist(), rel=0, abs=0, nan_ok=True), name
        if "16" in dtype:
            continue  # PyTorch does not round the number first
        number = getattr(cugrad, name)(ours[0], 0.7)
        assert number.tolist() == pytest.approx(
            getattr(torch, name)(theirs[0], 0.7).tolist(), rel=0, abs=0, nan_ok=True
        ), name


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("n", [5, 200, 3000])
def test_selections_among_nans(device: str, dtype: str, n: int) -> None:
    values = np.random.default_rng(n).permutation(n).astype("f8") % 250 - (dtype != "uint8") * 100
    if "int" not in dtype:
        values[[1, n // 2]], values[[0, n - 1]] = np.nan, [-np.inf, np.inf]
    x = cugrad.tensor(values, device=device).to(getattr(cugrad, dtype))
    rows = cugrad.stack([x, x.flip(0)])
    order = np.sort(rows.float().cpu().numpy(), 1)
    for k in (1, 2, n // 5, n):
        for largest in (True, False):
            found = cugrad.topk(rows, k, 1, largest)
            wanted = order[:, ::-1][:, :k] if largest else order[:, :k]
            np.testing.assert_array_equal(found.values.float().cpu().numpy(), wanted)
            there = cugrad.gather(rows, 1, found.indices)
            np.testing.assert_array_equal(there.float().cpu().numpy(), wanted)
        np.testing.assert_array_equal(
            cugrad.kthvalue(rows, k, 1).values.float().cpu().numpy(), order[:, k - 1]
        )
    middle = np.nan if "int" not in dtype else order[0, (n - 1) // 2]
    for found in (cugrad.median(rows, 1).values[0], cugrad.median(x)):
        np.testing.assert_array_equal(found.float().cpu().numpy(), middle)


def test_determinants_are_products_of_pivots(device: str) -> None:
    """Not powers of sums of logarithms, which lose digits as they grow."""
    a = np.random.default_rng(0).integers(-4, 5, (3, 12, 12)).astype("f8")
    large = cugrad.tensor(a * 300, device=device)
    np.testing.assert_allclose(
        cugrad.linalg.det(large).cpu().numpy(), np.linalg.det(a * 300), rtol=1e-13
    )
    singular = cugrad.ones(2, 3, 3, device=device)
    assert cugrad.linalg.det(singular).tolist() == [0, 0]
    assert cugrad.linalg.det(cugrad.zeros(2, 0, 0, device=device)).tolist() == [1, 1]
    huge = cugrad.eye(40, device=device) * 10
    assert cugrad.linalg.det(huge).item() == float("inf")  # more than float32 can hold


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("width", [64, 80])
def test_attention_of_halves(device: str, dtype: str, width: int) -> None:
    """On CUDA by tensor cores, of which no other test asks what lies where in their registers."""
    rng = np.random.default_rng(width)
    kind = getattr(cugrad, dtype)
    operands = [cugrad.tensor(rng.standard_normal((2, 2, 70, width))).to(kind) for _ in range(4)]
    seen = cugrad.tensor(rng.random((70, 70)) < 0.8)
    found = []
    for place, wide in ((device, kind), ("cpu", cugrad.float64)):
        q, k, v, g = (x.to(place, wide) for x in operands)
        leaves = [x.requires_grad_() for x in (q, k, v)]
        results: list[Any] = []
        for how in ({"is_causal": True}, {"attn_mask": seen.to(place)}):
            y = cugrad.nn.functional.scaled_dot_product_attention(*leaves, **how)
            results += [y.detach(), *cugrad.autograd.grad(y, leaves, g)]
        found.append([x.double().cpu().numpy() for x in results])
    tolerance = 2e-2 if dtype == "bfloat16" else 3e-3
    for ours, exact in zip(*found):
        np.testing.assert_allclose(ours, exact, rtol=0, atol=tolerance * np.abs(exact).max())
