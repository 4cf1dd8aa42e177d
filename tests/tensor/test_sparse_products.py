"""Products of sparse matrices: by SciPy, by cuSPARSE and without either, beside dense ones."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends.numpy import sparse

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int64", "int32",
          "int8", "uint8"]  # fmt: skip
ROWS, COLUMNS = [3, 0, 2, 0, 3, 3], [1, 0, 2, 0, 1, 0]  # two places twice, row 1 is empty


@pytest.fixture(params=["SciPy", "no SciPy"])
def scipy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SciPy, and as if it were not installed."""
    if request.param == "SciPy":
        pytest.importorskip("scipy")
    else:
        monkeypatch.setattr(sparse, "_scipy_sparse", lambda: None)


def operands(dtype: str, device: str) -> tuple[Any, Any, Any]:
    kind = getattr(cugrad, dtype)
    values = cugrad.tensor([1, 2, 3, 4, 5, 6], device=device).to(kind)
    other = cugrad.arange(6, device=device).reshape(3, 2).to(kind)
    if kind.is_complex:
        values, other = values * (1 + 2j), other * (3 - 1j)
    if kind.category > 1:
        values.requires_grad_()
        other.requires_grad_()
    places = cugrad.tensor([ROWS, COLUMNS], device=device)
    return cugrad.sparse_coo_tensor(places, values, (4, 3)), values, other


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coalesced", [False, True])
def test_values_and_gradients(scipy: None, dtype: str, coalesced: bool, device: str) -> None:
    a, values, other = operands(dtype, device)
    a = a.coalesce() if coalesced else a
    results = []
    for matrix in (a, a.to_dense()):
        out = matrix @ other
        results.append([out])
        if out.requires_grad:
            loss = (out * out.conj()).real.sum()
            results[-1] += cugrad.autograd.grad(loss, [values, other], retain_graph=True)
    for got, want in zip(*results, strict=True):
        assert got.dtype is want.dtype and got.device == want.device and got.is_contiguous()
        tolerance = {"float16": 1e-2, "bfloat16": 5e-2}.get(dtype, 1e-5)
        assert np.allclose(
            got.detach().to(cugrad.complex128).tolist(),
            want.detach().to(cugrad.complex128).tolist(), rtol=tolerance,
        )  # fmt: skip


def test_however_operands_lie(scipy: None, device: str) -> None:
    places = cugrad.tensor([[5, 0], [1, 3], [5, 2], [0, 1]], device=device).t()
    values = cugrad.arange(8.0, device=device)[::2]
    other = cugrad.arange(24.0, device=device).reshape(2, 3, 4).permute(2, 0, 1)[:, 1]
    a = cugrad.sparse_coo_tensor(places, values, (6, 4))
    want = a.to_dense() @ other
    assert cugrad.equal(a @ other, want)
    assert cugrad.equal(a @ other[:, 1], want[:, 1])
    assert cugrad.equal(other.t() @ a.t(), want.t())
    assert a.to_dense().numpy(force=True).sum() == 12  # nothing was written to


@pytest.mark.parametrize(
    "shape, count, width", [((0, 3), 0, 2), ((4, 3), 0, 2), ((4, 0), 0, 2), ((4, 3), 2, 0)]
)
def test_of_nothing(scipy: None, shape: Any, count: int, width: int, device: str) -> None:
    places = cugrad.zeros(2, count, dtype=cugrad.int64, device=device)
    values = cugrad.ones(count, device=device, requires_grad=True)
    a = cugrad.sparse_coo_tensor(places, values, shape)
    other = cugrad.ones(shape[1], width, device=device, requires_grad=True)
    out = a @ other
    out.sum().backward()
    assert out.shape == (shape[0], width) and not out.any()
    assert other.grad.shape == other.shape and values.grad.tolist() == [0] * count


def test_no_term_is_kept() -> None:
    """What a step allocates does not grow with edges times features."""
    pytest.importorskip("scipy.sparse")
    nodes, edges, features = 100, 50_000, 64
    rng = np.random.default_rng(0)
    places = cugrad.tensor(rng.integers(0, nodes, (2, edges)), device="cpu")
    values = cugrad.rand(edges, device="cpu", requires_grad=True)
    a = cugrad.sparse_coo_tensor(places, values, (nodes, nodes))
    x = cugrad.rand(nodes, features, device="cpu", requires_grad=True)
    (a @ x).sum().backward()
    values.grad = x.grad = None
    tracemalloc.start()
    try:
        (a @ x).sum().backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < edges * features * 4 / 2, peak


def test_second_derivatives_by_all(scipy: None) -> None:
    a, values, other = operands("float64", "cpu")

    def product(values: Any, other: Any) -> Any:
        return cugrad.sparse_coo_tensor([ROWS, COLUMNS], values, (4, 3)) @ other

    assert cugrad.autograd.gradcheck(product, (values, other), check_forward_ad=True)
    assert cugrad.autograd.gradgradcheck(product, (values, other))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_in_autocast_regions(scipy: None, dtype: str) -> None:
    """A function that autocast casts as one op calls other ops where an operand is sparse."""
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    kind = getattr(cugrad, dtype)
    values = cugrad.tensor([1.0, 2.0, 3.0], dtype=kind, requires_grad=True)
    dense = cugrad.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=kind)
    functions: list[Any] = [
        lambda s: cugrad.addmm(dense, s, dense), lambda s: dense.addmm(s, dense, beta=2),
        lambda s: s @ dense, lambda s: cugrad.sparse.addmm(dense, s, dense),
    ]  # fmt: skip
    for function in functions:
        results = []
        for is_on in (False, True):
            s = cugrad.sparse_coo_tensor([[0, 1, 1], [1, 0, 1]], values, (2, 2))
            with cugrad.autocast("cpu", dtype=cugrad.bfloat16, enabled=is_on):
                y = function(s)
            (grad,) = cugrad.autograd.grad(y.float().sum(), values)
            results.append([y.float().tolist(), grad.float().tolist()])
        assert results[0] == results[1]
