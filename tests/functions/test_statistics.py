"""Order, scans and statistics beside PyTorch: values, gradients where they are subtle, errors."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.conftest import usable_devices
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch")

ON_HOST = pytest.mark.skipif("cpu" not in usable_devices(), reason="compares on the host")

# Expressions of `t`, a library, and tensors of it: x a vector with ties, m a matrix, s a sorted
# vector, i integers, h half, b bfloat16, n with nan, z 0-d, e empty, c complex, mask bools.
SAME = """
x.median(), x.nanmedian(), n.median(), n.nanmedian(), z.median(), e.median(), i.median()
m.median(0), m.nanmedian(1, keepdim=True), z.median(0), m.median(dim=-1), b.median(), h.median()
m.kthvalue(2), m.kthvalue(1, 0, True), z.kthvalue(1)
i.mode(), m.mode(0), m.mode(1, keepdim=True), z.mode(0), h.mode()
t.quantile(m, 0.3), t.quantile(m, 0.3, 1), t.quantile(m, 0.3, 0, True)
t.quantile(m, 0, keepdim=True)
t.quantile(m, t.tensor([0.1, 0.5], dtype=t.float64), dim=1, keepdim=True), t.quantile(n, 0.5)
t.nanquantile(n, 0.5), t.nanquantile(n, t.tensor([0.25, 1.0], dtype=t.float64)), t.quantile(z, 0.5)
[t.quantile(m, 0.37, 1, interpolation=how) for how in ("lower", "higher", "midpoint", "nearest")]
x.cummax(0), x.cummin(0), m.cummax(1), n.cummax(0), n.cummin(0), z.cummax(0)
i.cummin(0), e.cummax(0)
m.logcumsumexp(0), x.logcumsumexp(-1), z.logcumsumexp(0), h.logcumsumexp(0), e.logcumsumexp(0)
t.logcumsumexp(t.tensor([-800.0, 800.0, 0.0, 801.0]), 0), c.logcumsumexp(0)
m.cumsum(0), i.cumsum(0), mask.cumsum(0), h.cumsum(0), m.cumprod(1), i.cumprod(0), e.cumsum(0)
i.cumsum(0, dtype=t.int32), i.prod(dtype=t.int16), mask.sum(dtype=t.uint8), i.sum(dtype=t.float32)
x.nansum(), n.nansum(), n.nanmean(), m.nanmean(1, True), n.nansum(0, dtype=t.float32), i.nansum()
t.aminmax(x), t.aminmax(m, dim=1, keepdim=True), t.aminmax(i), t.aminmax(z, dim=0)
t.std_mean(m), t.std_mean(m, 1, keepdim=True), t.var_mean(m, 0, correction=0), t.var_mean(c)
x.sort(stable=True), m.sort(0, True), m.sort(dim=1, descending=True, stable=True)
z.sort(), e.sort()
x.argsort(stable=True), x.argsort(descending=True, stable=True), t.msort(m), n.sort()
h.sort(), b.sort()
m.topk(2), m.topk(1, 0, False), z.topk(1), m.topk(0), t.topk(s, 2, largest=False)
x.unique(), i.unique(return_inverse=True, return_counts=True), n[:1].unique()
e.unique(), z.unique()
t.unique(t.tensor([[1, 2], [0, 1], [1, 2]]), dim=0, return_inverse=True, return_counts=True)
t.unique(t.tensor([[1, 2, 1], [0, 1, 0]]), dim=1), t.unique(mask), t.unique(b)
x.unique_consecutive(), i.unique_consecutive(return_inverse=True, return_counts=True)
t.unique_consecutive(t.tensor([[1, 1, 2], [0, 0, 0]]), dim=1, return_counts=True)
t.bincount(i), t.bincount(i, minlength=12), t.bincount(i, weights=x), t.bincount(i[:0])
t.histc(x, 4), t.histc(x, 3, 0, 3), t.histc(m, bins=5, min=-1, max=1), t.histc(x[:2] * 0)
t.histogram(x, 3), t.histogram(x, s[:3]), t.histogram(x, 4, range=(0.0, 4.0), density=True)
t.histogram(x, 3, weight=x), t.histogramdd(m, [2, 3, 2, 2]).hist
t.histogramdd(m, 2, density=True).hist
t.searchsorted(s, x), t.searchsorted(s, x, right=True)
t.searchsorted(s, x, side="right"), t.searchsorted(s, n)
t.searchsorted(s, 1.5), t.searchsorted(s, z, out_int32=True), t.searchsorted(s[:0], x)
t.searchsorted(m.sort(1)[0], m, right=True), t.searchsorted(x, x, sorter=x.argsort(stable=True))
t.searchsorted(s, i), t.searchsorted(i.sort()[0], x), t.bucketize(2.5, i.sort()[0])
t.bucketize(x, s), t.bucketize(2.0, s), t.bucketize(x, s, right=True, out_int32=True)
t.cov(m), t.cov(x), t.cov(c), t.cov(m, correction=0), t.cov(z), t.cov(i), t.corrcoef(m)
t.corrcoef(x)
t.cov(m, fweights=t.tensor([1, 2, 1, 3]), aweights=t.tensor([0.1, 0.2, 0.3, 0.4], dtype=t.float64))
t.trapezoid(x), t.trapezoid(m, dx=0.5), t.trapezoid(m, m[0], dim=1), t.trapz(m, m.abs(), dim=0)
t.cumulative_trapezoid(x), t.cumulative_trapezoid(m, dim=0, dx=2), t.cumulative_trapezoid(m, m[0])
t.gradient(x), t.gradient(m), t.gradient(m, dim=1, spacing=0.5), t.gradient(x, edge_order=2)
t.gradient(m, spacing=(s[:3], m[0])), t.gradient(m, spacing=[2.0, 0.5])
t.gradient(x, spacing=(s,), edge_order=2)
t.diff(x), t.diff(m, 2, 0), t.diff(x, 0, prepend=x), t.diff(mask), t.diff(m, append=m)
t.dist(x, s), t.dist(x, s, 1), t.dist(x, s, inf), t.dist(x, s, 0), t.dist(m, m[0], 3.5)
t.dist(c, c * 2)
t.renorm(m, 2, 0, 0.5), t.renorm(m, 1.5, 1, 1.0), t.renorm(c.reshape(2, 2), 2, 0, 0.1)
t.renorm(m, inf, -1, 1.0), t.renorm(t.stack([n, x[1:]]), 2, 0, 0.5)
m.norm(), m.norm(1), m.norm(inf, 1), m.norm(-inf), m.norm("fro", (0, 1)), m.norm("nuc")
m.norm(p=3, dim=0, keepdim=True)
t.norm(m, "nuc", dim=(0, 1), keepdim=True), c.norm(), c.norm(1), h.norm()
m.norm(dtype=t.float64), x.norm(0)
x.logsumexp(0), m.logsumexp((0, 1)), i.logsumexp(0), e.logsumexp(0), c.logsumexp(0)
(m - inf).logsumexp(1)
t.count_nonzero(m), t.count_nonzero(i, 0), t.nonzero(i, as_tuple=True), t.nonzero(z)
t.argwhere(m > 0)
t.nonzero_static(i, size=9), t.nonzero_static(m > 0, size=2, fill_value=5)
t.nonzero_static(z, size=1)
t.isin(i, t.tensor([1, 7])), t.isin(x, 2.0, invert=True), t.isin(3, i), t.isin(n, n)
m.renorm_(2, 0, 1), m.cumsum_(0), m.cumprod_(1), t.isin(m, i)
x.cumsum_(0, dtype=t.float64), i.cumprod_(0), z.cumsum_(0), i.int().cumsum_(0)
t.special.hermite_polynomial_h(s, n[:1]), t.special.legendre_polynomial_p(m[:2, 3], n[1:3])
t.special.laguerre_polynomial_l(x, nan)
t.allclose(x, x), t.equal(x, s), t.isclose(n, n, equal_nan=True), t.isclose(x, x + 1e-9)
t.equal(n, n)
h.sum(), h.mean(), h.var(), h.std(), b.sum(0), b.mean(0), h.prod(), b.logsumexp(0), h.cumprod(0)
e.sum(), e.prod(), e.mean(), e.var(), e.std(), x[:1].var(), x[:1].std(), e.norm()
e.any(), e.all(), e.nansum()
"""

WRONG = """
e.median(0) | e.mode(0) | e.kthvalue(1) | e.amax() | e.amax(0) | e.argmax() | e.max() | e.max(0)
e.norm(inf)
c.median() | c.sort() | c.topk(1) | c.mode() | c.unique() | c.amax() | c.cummax(0)
m.kthvalue(9) | m.kthvalue(0) | m.topk(9) | m.topk(-1) | m.median(5) | m.sort(2) | m.cumsum(-3)
t.quantile(m, 1.5) | t.quantile(i, 0.5) | t.quantile(h, 0.5) | t.quantile(e, 0.5)
t.quantile(m, 0.5, interpolation="x")
t.quantile(m, t.tensor([0.5])) | t.quantile(m, t.tensor([[0.5]], dtype=t.float64))
t.quantile(m, 0.5, dim=2)
t.bincount(x) | t.bincount(-i) | t.bincount(i, minlength=-1) | t.bincount(i, x[:1])
t.bincount(m)
t.histc(x, 0) | t.histc(x, 3, 2, 1) | t.histc(n) | t.histogram(x, 0) | t.histogram(x, m)
t.histogram(x, 3, weight=x[:1])
t.histogramdd(x, [2]) | t.histogramdd(m, [2, 2]) | t.histogram(x, 2, range=(1.0, inf))
t.searchsorted(m, x) | t.searchsorted(m, 1.0)
t.searchsorted(s, x, side="middle")
t.searchsorted(s, x, side="left", right=True) | t.searchsorted(s, x, sorter=i[:2])
t.bucketize(x, m)
t.searchsorted(s, x, sorter=x) | t.searchsorted(s, x, sorter=i + 90)
t.cov(m[None]) | t.cov(mask) | t.cov(m, fweights=x) | t.cov(m, aweights=i[:4])
t.cov(m, fweights=i[:2])
t.renorm(m, 0, 0, 1.0) | t.renorm(x, 2, 0, 1.0) | t.renorm(m, 2, 0, -1.0) | t.renorm(m, 2, 2, 1.0)
t.gradient(m, dim=2) | t.gradient(m, edge_order=3) | t.gradient(x[:1])
t.gradient(m, spacing=[1.0])
t.trapezoid(m, x[:2]) | t.gradient(m, spacing=(m, m)) | t.norm(x, "nuc") | t.norm(x, "other")
i.mean() | i.var() | t.mean(x, dtype=t.int64) | t.nanmean(i) | m.sum((0, 0)) | m.sum(2)
t.unique(m, dim=2)
t.nonzero_static(x, size=-1) | m.norm(dtype=t.float32) | t.logcumsumexp(x, 1) | t.diff(z)
t.diff(x, -1) | t.nansum(c) | mask.median()
x.cumsum_(0, dtype=t.int64) | i.cumsum_(0, dtype=t.float32) | x.cumprod_(0, dtype=t.float32)
"""


def lines_of(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def names(lib: Any) -> dict[str, Any]:
    def f64(values: Any) -> Any:
        return lib.tensor(values, dtype=lib.float64)

    matrix = np.random.default_rng(7).standard_normal((3, 4)).tolist()
    return {
        "t": lib, "inf": inf, "nan": nan,
        "x": f64([2.0, 1.0, 2.0, 3.0, 1.0, 0.5]), "m": f64(matrix),
        "s": f64([0.0, 0.5, 1.0, 2.0, 2.0, 4.0]), "i": lib.tensor([3, 1, 0, 3, 7, 1]),
        "h": lib.tensor([1.5, 0.25, 3.0], dtype=lib.float16),
        "b": lib.tensor([1.5, 0.25, 3.0], dtype=lib.bfloat16), "n": f64([1.0, nan, 3.0, nan, 2.0]),
        "z": f64(1.5), "e": f64([]), "mask": lib.tensor([True, False, True]),
        "c": lib.tensor([1 + 1j, -0.5j, 0.3, 2 - 1j], dtype=lib.complex128),
    }  # fmt: skip


def tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors(v)]
    return [value]


def host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value.detach().cpu().numpy()) if isinstance(value, cugrad.Tensor) else value


@ON_HOST
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of no degrees of freedom
@pytest.mark.parametrize("line", lines_of(SAME))
def test_same_as_pytorch(line: str) -> None:
    mine, theirs = (tensors(eval(line, names(lib))) for lib in (cugrad, torch))
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        if isinstance(b, torch.Tensor):
            assert str(a.dtype) == str(b.dtype)
            assert tuple(a.shape) == tuple(b.shape)
        p, q = (np.asarray(host(v)) for v in (a, b))
        p, q = (v.astype("f8") if v.dtype.kind == "V" else v for v in (p, q))
        tolerance = 4e-3 if getattr(b, "dtype", None) in (torch.half, torch.bfloat16) else 1e-6
        np.testing.assert_allclose(p, q, rtol=tolerance, atol=1e-7, equal_nan=True)


@ON_HOST
@pytest.mark.parametrize("line", lines_of(WRONG))
def test_refused_as_by_pytorch(line: str) -> None:
    with pytest.raises(Exception) as theirs:
        eval(line, names(torch))
    with pytest.raises(Exception) as mine:
        eval(line, names(cugrad))
    wanted = theirs.type.__name__
    assert wanted in {c.__name__ for c in mine.type.__mro__}, (mine.value, theirs.value)


# Where gradients are subtle: elements that are equal, zero, alone, or not finite.
VALUES: dict[str, Any] = {
    "ties": [1.0, 3.0, 3.0, 2.0, 3.0, 1.0], "zero": [2.0, 0.0, 3.0], "zeros": [2.0, 0.0, 3.0, 0.0],
    "all zero": [0.0, 0.0, 0.0], "one": [2.0], "a zero": [0.0], "constant": [2.0, 2.0],
    "-inf": [-inf, 0.5, -inf], "large": [1000.0, 1001.0, -1000.0], "0-d": 3.0,
    "matrix": [[1.0, 1.0], [0.0, 2.0]], "column of zeros": [[0.0, 1.0], [0.0, 3.0]],
}  # fmt: skip
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda t, x: x.max(), "max of dim": lambda t, x: x.max(0),
    "amax": lambda t, x: x.amax(0), "amin": lambda t, x: x.amin(),
    "aminmax": lambda t, x: t.aminmax(x),
    "median": lambda t, x: x.median(), "median of dim": lambda t, x: x.median(0),
    "nanmedian": lambda t, x: x.nanmedian(), "mode": lambda t, x: x.mode(0),
    "sort": lambda t, x: x.sort(dim=0, stable=True), "cummax": lambda t, x: x.cummax(0),
    "cummin": lambda t, x: x.cummin(0), "prod": lambda t, x: x.prod(),
    "prod of dim": lambda t, x: x.prod(0), "cumprod": lambda t, x: x.cumprod(0),
    "var": lambda t, x: x.var(0), "std": lambda t, x: x.std(),
    "var_mean": lambda t, x: t.var_mean(x, 0),
    "std without correction": lambda t, x: x.std(0, correction=0),
    "logsumexp": lambda t, x: x.logsumexp(0), "softmax": lambda t, x: x.softmax(0),
    "quantile": lambda t, x: t.quantile(x, 0.3), "nanmean": lambda t, x: t.nanmean(x),
    **{f"norm {p}": lambda t, x, p=p: x.norm(p, 0) for p in (0.5, 1, 1.5, 2, 3, inf, -inf, -1, -2)},
    **{f"renorm {p}": lambda t, x, p=p: t.renorm(x, p, 0, 1.0) for p in (1, 2, 3)},
}  # fmt: skip
# PyTorch divides by a product that is infinite, and answers nan.
BEYOND = {("prod", "-inf"), ("prod of dim", "-inf"), ("cumprod", "-inf")}


def gradient(lib: Any, call: Callable[[Any, Any], Any], values: Any) -> Any:
    x = lib.tensor(values, dtype=lib.float64, requires_grad=True)
    try:
        outputs = [o for o in tensors(call(lib, x)) if o.requires_grad]
    except (RuntimeError, IndexError) as error:
        return type(error).__name__
    weights = [lib.arange(1, o.numel() + 1).reshape(o.shape).to(o.dtype) for o in outputs]
    return host(lib.autograd.grad(outputs, [x], weights)[0])


@ON_HOST
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", cases(CALLS, ["aminmax"]))
def test_subtle_gradients(name: str) -> None:
    for kind, values in VALUES.items():
        if (name, kind) in BEYOND:
            continue
        mine, theirs = (gradient(lib, CALLS[name], values) for lib in (cugrad, torch))
        if isinstance(theirs, str):
            assert mine == theirs, kind
        else:
            np.testing.assert_allclose(mine, theirs, 1e-6, 1e-12, equal_nan=True, err_msg=kind)


def test_the_gradient_of_logcumsumexp_is_finite_where_nothing_has_come_yet(device: str) -> None:
    x = cugrad.tensor([-inf, -inf, 1.0, 2.0], requires_grad=True, device=device)
    x.logcumsumexp(0)[3].backward()
    assert x.grad is not None
    wanted = np.exp([-inf, -inf, 1, 2]) / (np.exp(1) + np.exp(2))
    np.testing.assert_allclose(x.grad.cpu().numpy(), wanted, rtol=1e-6)


def test_logcumsumexp_neither_overflows_nor_loses_small_terms(device: str) -> None:
    x = cugrad.tensor([-800.0, 0.0, 800.0, -800.0], requires_grad=True, device=device)
    y = x.logcumsumexp(0)
    np.testing.assert_allclose(y.detach().cpu().numpy(), [-800, 0, 800, 800])
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.cpu().numpy(), [1, 1, 2, 0], rtol=1e-4)


@pytest.mark.parametrize("name", ["median", "mode", "kthvalue", "cummax", "sort", "topk"])
def test_results_have_names(name: str, device: str) -> None:
    x = cugrad.tensor([3.0, 1.0, 2.0], device=device)
    arguments = {"median": (0,), "kthvalue": (2,), "cummax": (0,), "topk": (2,)}.get(name, ())
    found = getattr(x, name)(*arguments)
    assert found._fields == ("values", "indices")
    assert repr(found).startswith(f"torch.return_types.{name}(\nvalues=tensor(")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 7, 400])
def test_topk_is_the_head_of_sort(k: int, largest: bool, device: str) -> None:
    """Whether a part of the elements is selected first or all are sorted."""
    rows = np.arange(500.0) + 1000 * np.arange(3)[:, None]
    x = cugrad.tensor(np.random.default_rng(k).permuted(rows, axis=1), device=device)
    values, indices = x.topk(k, 1, largest)
    ordered, places = x.sort(1, descending=largest)
    assert cugrad.equal(values, ordered[:, :k]) and cugrad.equal(indices, places[:, :k])
    loose = x.topk(k, 1, largest, sorted=False)
    assert cugrad.equal(loose.values.sort(1).values, values.sort(1).values)
    assert cugrad.equal(x.gather(1, loose.indices), loose.values)


def test_a_long_sort_is_right_without_being_asked_to_be_stable(device: str) -> None:
    x = cugrad.tensor(np.random.default_rng(0).integers(0, 50, (2, 5000)), device=device)
    for descending in (False, True):
        values, indices = x.sort(1, descending)
        assert cugrad.equal(values, x.gather(1, indices))
        steps = values.diff(dim=1)
        assert (steps <= 0 if descending else steps >= 0).all()
        stable = x.argsort(1, descending, stable=True)
        same = values.diff(dim=1) == 0
        assert (stable.diff(dim=1)[same] > 0).all()


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")  # PyTorch's
@pytest.mark.parametrize("correction", [-1, -0.5, 0, 1])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_the_variance_of_nothing_is_nan(
    lib: Any, shape: tuple[int, ...], correction: float
) -> None:
    """Whatever is taken off its count."""
    of_all = lib.var(lib.zeros(shape), correction=correction)
    of_each = lib.std(lib.zeros(shape), dim=shape.index(0), correction=correction)
    assert bool(of_all.isnan()) and bool(of_each.isnan().all())
