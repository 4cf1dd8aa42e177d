"""Values and gradients of elementwise rows where numbers end: nan, infinities, zeros, denormals."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.ops.table import ELEMENTWISE, TABLE

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
NAN, INF = float("nan"), float("inf")
REAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 1e-310]
COMPLEX = [0j, 1 + 0j, -1 + 0j, 1j, -1j, 2 + 1j]

# Functions whose derivatives have a case of their own at one of these; all are as PyTorch's.
FUNCTIONS = (
    "relu", "abs", "sign", "angle", "exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "square",
    "tanh", "sigmoid", "lgamma", "erf", "sinc", "floor", "frac", "nan_to_num", "asin", "acos",
    "atan", "asinh", "sin", "expm1", "deg2rad", "positive", "trunc",
)  # fmt: skip
PAIRS = ("atan2", "maximum", "minimum", "fmax", "fmin", "hypot", "xlogy", "logaddexp", "mul",
         "true_divide", "ldexp")  # fmt: skip
NOT_COMPLEX = {"relu", "sign", "lgamma", "erf", "floor", "frac", "nan_to_num", "trunc", "deg2rad",
               "sinc"}  # fmt: skip


def found(lib: Any, name: str, values: list[np.ndarray]) -> list[np.ndarray]:
    leaves = [lib.tensor(v, requires_grad=True) for v in values]
    out = getattr(lib, name)(*leaves)
    grads = lib.autograd.grad(out, leaves, lib.ones_like(out), allow_unused=True)
    results = [out.detach(), *[g for g in grads if g is not None]]
    return [np.asarray(r.tolist()) for r in results]


@pytest.mark.parametrize("name", FUNCTIONS + PAIRS)
def test_where_numbers_end(name: str, device: str) -> None:
    for kind in (REAL, COMPLEX) if name not in NOT_COMPLEX and name not in PAIRS else (REAL,):
        values = [np.array(kind)]
        if name in PAIRS:
            values = [np.repeat(kind, len(kind)), np.tile(kind, len(kind))]
        for got, want in zip(*[found(lib, name, values) for lib in (cugrad, torch)], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("numbers", [{}, {"nan": 5.0, "posinf": 7.0, "neginf": -3.0}])
def test_both_parts_of_a_complex_number_are_numbers(numbers: Any, device: str) -> None:
    """Their gradients, which PyTorch has none of, are those of either part."""
    values = np.array([complex(a, b) for a in (NAN, INF, -INF, 1.0) for b in (NAN, INF, -INF, 2)])
    for dtype in ("complex64", "complex128"):
        got, want = [
            lib.nan_to_num(lib.tensor(values, dtype=getattr(lib, dtype)), **numbers).tolist()
            for lib in (cugrad, torch)
        ]
        assert got == want
    parts = [cugrad.tensor(x, requires_grad=True) for x in (values.real, values.imag)]
    whole = cugrad.tensor(values, requires_grad=True)
    out = cugrad.nan_to_num(whole, **numbers)
    (g,) = cugrad.autograd.grad(out, whole, cugrad.full_like(out, 1 + 2j))
    apart = sum(k * cugrad.nan_to_num(x, **numbers).sum() for k, x in zip((1, 2), parts))
    first, second = cugrad.autograd.grad(apart, parts)
    assert g.real.tolist() == first.tolist() and g.imag.tolist() == second.tolist()


@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_remainders_where_numbers_end(name: str, device: str) -> None:
    kind = [x for x in REAL if x != 1e-310]  # of denormals PyTorch's are nan, but not 0-d ones
    values = [np.repeat(kind, len(kind)), np.tile(kind, len(kind))]
    for got, want in zip(*[found(lib, name, values) for lib in (cugrad, torch)], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_quotients_of_numbers_and_tensors_are_cut_alike(dtype: str, device: str) -> None:
    drawn = np.random.default_rng(0).normal(size=(2, 5000))
    for got, want in zip(*[
        [lib.div(x, y, rounding_mode="trunc").tolist() for y in (y, 0.3)]
        for lib in (cugrad, torch)
        for x, y in [[lib.tensor(v, dtype=getattr(lib, dtype)) for v in drawn * 50]]
    ]):  # fmt: skip
        assert got == want


def signs(lib: Any, name: str, dtype: str) -> list[bool]:
    """The signs of what a function makes of numbers, of zeros too, and that they are numbers."""
    function = getattr(lib, name, None) or getattr(lib.nn.functional, name)
    values = [0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, -6.0]
    out = function(lib.tensor(values, dtype=getattr(lib, dtype)))
    return [(x > 0) - (x < 0) or 2 * math.copysign(1.0, x) for x in out.tolist() if x == x]


# Those of PyTorch's softshrink depend on the place, of its gelu on the processor.
SIGNLESS = "softshrink", "gelu", "clamp", "imag"
ALONE = [
    name for name, op in TABLE.items()
    if op.kind == ELEMENTWISE and len(op.inputs) == 1 and name not in SIGNLESS
    and (hasattr(torch, name) or hasattr(torch.nn.functional, name))
]  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_zeros_have_the_sign_of_pytorchs(name: str, device: str) -> None:
    for dtype in ("float64", "float32"):
        try:
            want = signs(torch, name, dtype)
        except TypeError:  # for want of an argument
            continue
        assert signs(cugrad, name, dtype) == want, dtype


@pytest.mark.parametrize("name", ["atan2", "angle", "relu", "abs"])
def test_second_derivatives_at_zero_are_numbers(name: str, device: str) -> None:
    z = cugrad.zeros(2, dtype=cugrad.complex128 if name in ("angle", "abs") else cugrad.float64)
    x = z.requires_grad_()
    out = cugrad.atan2(x, x * 1) if name == "atan2" else getattr(cugrad, name)(x)
    (g,) = cugrad.autograd.grad(out.sum(), x, create_graph=True)
    if g.requires_grad:
        (h,) = cugrad.autograd.grad(g.abs().sum(), x, allow_unused=True)
        assert h is None or bool(cugrad.isfinite(h).all())


def test_a_float_alpha_scales_integers_in_the_dtype_of_the_sum(device: str) -> None:
    for lib in (cugrad, torch):
        whole, half = lib.ones(2, dtype=lib.int64), lib.tensor(1.5, dtype=lib.float64)
        assert lib.add(half, whole, alpha=0.5).dtype is lib.float64
        assert lib.sub(half, whole, alpha=0.5).tolist() == [1.0, 1.0]
        with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
            lib.add(whole, whole, alpha=0.5)


ALPHAS = (0, 1, 2, 0.5, 1.0, True, False, 1j)
KINDS = ("bool", "uint8", "int64", "float32", "complex64")


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
def test_alpha_is_a_number_of_the_kind_of_the_sum(alpha: Any) -> None:
    def outcome(lib: Any, left: str, right: str, function: str) -> Any:
        a, b = (lib.tensor([1, 0]).to(getattr(lib, kind)) for kind in (left, right))
        call = getattr(a if function.endswith("_") else lib, function)
        try:
            out = call(*(() if function.endswith("_") else (a,)), b, alpha=alpha)
        except RuntimeError as error:
            return str(error)[:40]
        return str(out.dtype).split(".")[-1], out.tolist()

    for function in ("add", "sub", "rsub", "add_"):
        for left, right in product(KINDS, KINDS):
            if function == "add_" and left != right:
                continue
            case = (left, right, function)
            assert outcome(cugrad, *case) == outcome(torch, *case), case


def test_layer_norm_of_any_layout_is_in_rows(device: str) -> None:
    for lib in (cugrad, torch):
        assert lib.nn.functional.layer_norm(lib.randn(4, 3).t(), (4,)).is_contiguous()


@pytest.mark.filterwarnings("ignore:.*0-D tensors")
def test_a_number_is_its_own_transpose(device: str) -> None:
    for lib in (cugrad, torch):
        assert lib.tensor(2j).adjoint() == -2j
        assert lib.tensor(2.0).mT == 2 and lib.tensor(2j).mH.item() == -2j


def test_derivatives_that_are_zero_can_be_written_to(device: str) -> None:
    f = cugrad.func
    x = cugrad.ones(3)
    constant, linear = (lambda x: cugrad.ones(3)), (lambda x: (x * 2).sum())
    for g in (f.jacrev(constant), f.jacfwd(constant), f.hessian(linear),
              f.jacrev(f.jacfwd(linear))):  # fmt: skip
        found = g(x)
        found.fill_(1)
        assert bool((found == 1).all())


REFUSING = {
    "heaviside": lambda lib, x: lib.heaviside(x, x * 2),
    "heaviside by values": lambda lib, x: x.detach().heaviside(x),
    "unique": lambda lib, x: lib.unique(x),
    "unique, all of it": lambda lib, x: x.unique(return_inverse=True, return_counts=True)[0],
    "unique along a dim": lambda lib, x: lib.unique(x, dim=0),
    "unique_consecutive": lambda lib, x: lib.unique_consecutive(x),
    "bincount by weights": lambda lib, x: lib.bincount(lib.tensor([0, 1, 1]), x),
    "histogram": lambda lib, x: lib.histogram(x, 2).hist,
    "edges of histogram": lambda lib, x: lib.histogram(x, 2).bin_edges,
    "histogram by weight": lambda lib, x: lib.histogram(x.detach(), 2, weight=x).hist,
}


@pytest.mark.parametrize("name", REFUSING)
def test_what_has_no_derivative_says_so_in_backward(name: str, device: str) -> None:
    found = []
    for lib in (cugrad, torch):
        x = lib.tensor([0.0, 2.0, 2.0], requires_grad=True)
        out = REFUSING[name](lib, x)
        assert out.requires_grad and not REFUSING[name](lib, x.detach()).requires_grad
        with pytest.raises(RuntimeError) as error:
            (out.sum() + x.sum()).backward()
        found.append((out.tolist(), out.grad_fn.name(), str(error.value)))
    assert found[0] == found[1]


def test_boxes_of_points_have_no_derivative() -> None:
    for lib in (cugrad, torch):  # PyTorch names the ops within
        hist, edges = lib.histogramdd(lib.ones(3, 1, requires_grad=True), [2])
        for part in (hist, edges[0]):
            with pytest.raises(RuntimeError, match="derivative for aten::.*histogramdd"):
                part.sum().backward()


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_second_derivatives_of_products_with_zeros(zeros: int, device: str) -> None:
    found = []
    for lib in (cugrad, torch):
        x = lib.tensor([1.0, 2.0], dtype=lib.float64, requires_grad=True)
        src = [0.0] * zeros + [3.0, 4.0, 5.0, 6.0][zeros:]
        s = lib.tensor(src, dtype=lib.float64, requires_grad=True)
        y = lib.scatter_reduce(x, 0, lib.tensor([0, 0, 0, 1]), s, "prod")
        first = lib.autograd.grad(y.sum(), (x, s), create_graph=True)
        if zeros > 1:
            with pytest.raises(RuntimeError, match="Double backward is unsupported for src"):
                lib.autograd.grad(sum((g * g).sum() for g in first), (x, s))
        else:
            second = lib.autograd.grad(sum((g * g).sum() for g in first), (x, s))
            found.append([g.tolist() for g in (*first, *second)])
    for got, want in zip(*found, strict=True) if found else ():
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("eps", [None, 0.0, 0.25])
def test_the_gradient_of_logit_at_its_ends(eps: float | None, device: str) -> None:
    """Infinite at 0 and 1, which are inside; at -0.0 PyTorch's two kernels do not agree."""
    grads = []
    for lib in (cugrad, torch):
        values = [-0.5, 0.0, 0.2, 0.25, 0.3, 0.75, 0.8, 1.0, 1.5, NAN, INF, -INF]
        x = lib.tensor(values, dtype=lib.float64, requires_grad=True)
        (g,) = lib.autograd.grad(lib.logit(x, eps).sum(), x)
        grads.append(g.tolist())
    np.testing.assert_allclose(*grads, rtol=1e-12)


@pytest.mark.parametrize("at", [-300.0, -40.0, -1.0, 0.0, 1.0, 40.0, 300.0])
def test_derivatives_of_log_ndtr_are_numbers_far_out(lib: Any, at: float) -> None:
    grad, found = lib.func.grad, lib.special.log_ndtr
    slopes = []
    for _ in range(2):
        found = grad(found)
        slopes.append(found(lib.tensor(at, dtype=lib.float64)).item())
    mills = math.sqrt(2 / math.pi) / lib.special.erfcx(lib.tensor(-at / 2**0.5).double()).item()
    assert slopes == pytest.approx([mills, -mills * (mills + at)], rel=1e-3, abs=1e-300)


# Whose derivative is 0 on some side, or everywhere: no gradient passes there, not even inf or nan.
FLAT = {
    "relu": lambda lib, x: lib.relu(x),
    "clamp(min)": lambda lib, x: x.clamp(min=0.25),
    "clamp(max)": lambda lib, x: x.clamp(max=-0.25),
    "clamp(min, max)": lambda lib, x: x.clamp(-0.25, 0.25),
    "clamp(Tensor)": lambda lib, x: x.clamp(min=lib.full_like(x, 0.25)),
    "threshold": lambda lib, x: lib.nn.functional.threshold(x, 0.25, 0.0),
    "hardsigmoid": lambda lib, x: lib.nn.functional.hardsigmoid(x * 8),
    "where": lambda lib, x: lib.where(x > 0, x, 0.0),
    "masked_fill": lambda lib, x: x.masked_fill(x > 0, 0),
    "pow(0)": lambda lib, x: x**0,
    "div(trunc)": lambda lib, x: lib.div(x, 0.0, rounding_mode="trunc"),
    "div(floor)": lambda lib, x: lib.div(x, 0.0, rounding_mode="floor"),
    "1 / x (trunc)": lambda lib, x: lib.div(lib.ones_like(x), x - x, rounding_mode="trunc"),
} | {name: lambda lib, x, name=name: getattr(lib, name)(x) for name in (
    "sign", "floor", "ceil", "round", "trunc")}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FLAT)
def test_no_gradient_passes_where_the_derivative_is_zero(name: str, dtype: str) -> None:
    count = 4099  # more than a block of numbers that a processor takes at once
    values = np.resize(np.array([-3.0, -0.5, 0.5, 3.0]), count)
    given = np.resize(np.array([INF, NAN, -INF, 1.0, 2.0]), count)
    grads = []
    for lib in (torch, cugrad):
        x = lib.tensor(values, dtype=getattr(lib, dtype), requires_grad=True)
        out = FLAT[name](lib, x)
        out.backward(lib.tensor(given, dtype=out.dtype))
        grads.append(np.asarray(x.grad.float().tolist()))
    np.testing.assert_array_equal(grads[1], grads[0])


# Whose second derivative has another value on either side of a point of KINKED.
KINKED = (-1.0, -0.5, -0.0, 0.0, 0.5, 1.0)
CURVED = {
    "elu": lambda F, x: F.elu(x, 0.75),
    "celu": lambda F, x: F.celu(x, 0.75),
    "selu": lambda F, x: F.selu(x),
    "huber_loss": lambda F, x: F.huber_loss(x, x.detach() * 0, delta=0.5),
    "smooth_l1_loss": lambda F, x: F.smooth_l1_loss(x, x.detach() * 0),
    "hardswish": lambda F, x: F.hardswish(x * 3),
    "silu": lambda F, x: F.silu(x),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CURVED)
def test_second_derivatives_where_two_pieces_meet(name: str, dtype: str) -> None:
    """As of what is zero: a gate, or padding."""
    results = []
    for lib in (torch, cugrad):
        x = lib.tensor(KINKED, dtype=getattr(lib, dtype), requires_grad=True)
        out = CURVED[name](lib.nn.functional, x).sum()
        (first,) = lib.autograd.grad(out, x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x)
        results.append([first.tolist(), second.tolist()])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-7)
