"""Rows that the host computes by code of their own are those of the table."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad.backends import get
from cugrad.backends.numpy import rows
from cugrad.backends.numpy.written import quotients, reductions, registry
from cugrad.dtypes import bfloat16
from cugrad.nn import functional as F
from cugrad.ops.table import TABLE, raw

Array = np.ndarray[Any, Any]
SHAPE = (5, 6, 2, 3)
CASES: dict[str, tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "sigmoid": ("sigmoid", (SHAPE,), {}),
    "silu": ("silu", (SHAPE,), {}),
    "mish": ("mish", (SHAPE,), {}),
    "leaky_relu": ("leaky_relu", (SHAPE,), {"negative_slope": 0.3}),
    "reciprocal": ("reciprocal", (SHAPE,), {}),
    "gelu": ("gelu", (SHAPE,), {"approximate": "none"}),
    "gelu by tanh": ("gelu", (SHAPE,), {"approximate": "tanh"}),
    "layer_norm": ("native_layer_norm", (SHAPE, (3,), (3,)), {"normalized_shape": (3,)}),
    "layer_norm of two dims": (
        "native_layer_norm", (SHAPE, (2, 3), (2, 3)), {"normalized_shape": (2, 3)}),
    "group_norm": ("native_group_norm", (SHAPE, (6,), (6,)), {"num_groups": 3}),
    "group_norm of one": ("native_group_norm", (SHAPE, (6,), (6,)), {"num_groups": 1}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BLOCK", 77)
    monkeypatch.setattr(registry, "LEAST", 0)


def operands(shapes: Any, dtype: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(0)
    return [(3 * rng.standard_normal(shape) + 0.5).astype(dtype) for shape in shapes]


def forward_and_gradients(op: Any, inputs: Any, params: Any, mask: int) -> Any:
    """What is written for a row, and what its forward and formulas make; gradients may be None."""
    xp = get("cpu").xp
    params = {**op.defaults, **params}
    plain = op.forward(xp, *inputs, **params)
    single = len(op.outputs) == 1
    results = dict(zip(op.outputs, (plain,) if single else plain))
    written = rows.forward_of(op, xp)(*inputs, **params)
    g = np.random.default_rng(1).standard_normal(SHAPE).astype(inputs[0].dtype)
    saved = [{**dict(zip(op.inputs, inputs)), **results}[name] for name in op.saves(mask)]
    shapes = tuple(None if x is None else x.shape for x in inputs)
    meta = shapes, params, (g.dtype,) * len(inputs), None, False
    wanted = op.gradients(mask)(raw, g, saved, shapes, params)
    backward = registry.backward_of(op, mask)
    grads = None if backward is None else backward(g, saved, meta)
    return (written if single else written[0], results["result"]), (grads, wanted)


@pytest.mark.parametrize("name, shapes, params", CASES.values(), ids=CASES)
def test_written_rows_are_those_of_the_table(name: str, shapes: Any, params: Any) -> None:
    op, inputs = TABLE[name], operands(shapes)
    for mask in range(1, 1 << len(inputs)):
        (got, want), (grads, wanted) = forward_and_gradients(op, inputs, params, mask)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, 2e-6, 1e-6)
        for i, slope in enumerate(grads or ()):
            assert (slope is None) == (not mask >> i & 1)
            if slope is not None:
                assert (slope.shape, slope.dtype) == (inputs[i].shape, np.float32)
                np.testing.assert_allclose(slope, wanted[i].reshape(slope.shape), 2e-5, 5e-6)
        if grads is not None and grads[0] is not None:
            assert grads[0].base is None  # else it would be copied for a leaf
        declines = name in ("sigmoid", "reciprocal") or name.startswith("native")
        assert grads is not None or declines and (len(shapes) == 1 or mask == 4)


@pytest.mark.parametrize("name", ["native_layer_norm", "native_group_norm"])
def test_norms_without_weights(name: str) -> None:
    params = {"normalized_shape": (3,)} if "layer" in name else {"num_groups": 2}
    inputs = [*operands((SHAPE,)), None, None]
    (got, want), (grads, wanted) = forward_and_gradients(TABLE[name], inputs, params, 1)
    np.testing.assert_allclose(got, want, 2e-6, 1e-6)
    np.testing.assert_allclose(grads[0], wanted[0], 2e-5, 5e-6)
    assert grads[1:] == (None, None)


@pytest.mark.parametrize("params", [{"normalized_shape": (6, 2, 3)}, {"num_groups": 2}])
def test_norms_with_one_of_weight_and_bias(params: dict[str, Any]) -> None:
    layer = "normalized_shape" in params
    op = TABLE["native_layer_norm" if layer else "native_group_norm"]
    x, weight, bias = operands((SHAPE, *[(6, 2, 3) if layer else (6,)] * 2))
    for inputs in ((x, weight, None), (x, None, bias)):
        got = registry.FORWARDS[op.name](*inputs, *params.values())
        want = op.forward(get("cpu").xp, *inputs, **params)
        for each, other in zip(got, want, strict=True):
            assert (each.shape, each.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(each, other, 2e-6, 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_the_last_dim(dtype: Any) -> None:
    op, inputs = TABLE["softmax"], operands((SHAPE,), dtype)
    (got, want), (grads, wanted) = forward_and_gradients(op, inputs, {"dim": -1}, 1)
    np.testing.assert_allclose(got, want, 2e-6, 1e-6)
    assert (grads is not None) == (dtype is np.float32) and got.dtype == dtype
    if grads is not None:
        np.testing.assert_allclose(grads[0], wanted[0], 2e-5, 5e-6)


def test_softmax_of_other_dims_is_the_row_s() -> None:
    x = operands((SHAPE,))[0]
    for dim in (-2, 0, 1, 2):
        assert registry.FORWARDS["softmax"](x, dim) is None
    assert registry.FORWARDS["softmax"](x, 3) is not None
    assert registry.FORWARDS["softmax"](np.ones((2, 1 << 13), np.float32), -1) is None
    saved = {"result": x}
    assert registry.BACKWARDS["softmax"](x[:1], saved, {"dim": -1}, ("self",)) is None


def test_norms_of_long_rows_keep_their_digits() -> None:
    rows = np.random.default_rng(0).random((5, 1 << 15)).astype(np.float32) + 3
    wide = rows.astype(float)
    exact, spread = wide.mean(1, keepdims=True), np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    result, mean, _ = registry.FORWARDS["native_layer_norm"](rows, None, None, rows.shape[1:])
    np.testing.assert_allclose(mean, exact, 2e-7)
    np.testing.assert_allclose(result, (wide - exact) / spread, 0, 4e-6)
    assert (
        registry.FORWARDS["native_layer_norm"](rows.reshape(-1), None, None, (rows.size,)) is None
    )


@pytest.mark.parametrize("name, shapes, params", CASES.values(), ids=CASES)
def test_what_is_written_declines_other_arrays(name: str, shapes: Any, params: Any) -> None:
    op, mask = TABLE[name], (1 << len(shapes)) - 1
    (got, want), (grads, _) = forward_and_gradients(op, operands(shapes, float), params, mask)
    np.testing.assert_allclose(got, want, 1e-12)
    assert grads is None
    turned = [np.asfortranarray(x) for x in operands(shapes)]
    (got, want), (grads, _) = forward_and_gradients(op, turned, params, mask)
    np.testing.assert_array_equal(got, want)
    assert grads is None and got.strides == want.strides


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu by tanh", "mish", "leaky_relu"])
def test_slopes_in_half_precision_are_rounded_once(name: str, kind: Any) -> None:
    op, params = TABLE[CASES[name][0]], CASES[name][2]
    x, g = (each.astype(kind) for each in operands((SHAPE, SHAPE)))
    backward = registry.backward_of(op, 1)
    assert backward is not None
    meta = (SHAPE,), {**op.defaults, **params}, (x.dtype,), None, False
    (slope,) = backward(g, [x], meta)
    (exact,) = backward(g.astype(np.float32), [x.astype(np.float32)], meta)
    assert (slope.dtype, slope.base) == (x.dtype, None)
    np.testing.assert_array_equal(slope, exact.astype(kind))
    assert backward(g, [x.astype(np.float32)], meta) is None


def cross_entropy(x: Array, target: Array, reduction: str, **how: Any) -> tuple[Any, Any]:
    """The results and the slope as written, or None, and those of the row."""
    op, xp = TABLE["cross_entropy"], get("cpu").xp
    params = {**op.defaults, "reduction": reduction, **how}
    results = op.forward(xp, x, target, None, **params)
    g = np.ones_like(results[0])
    by_name = {"self": x, "target": target, "weight": None, **dict(zip(op.outputs, results))}
    saved = [by_name[name] for name in op.saves(1)]
    meta = (x.shape, target.shape, None), params, (x.dtype,) * 3, None, False
    backward = registry.backward_of(op, 1)
    assert backward is not None
    written = registry.FORWARDS["cross_entropy"](x, target, None, *params.values())
    wanted = op.gradients(1)(raw, g, saved, meta[0], params)
    return (written, results), (backward(g, saved, meta), wanted)


@pytest.mark.parametrize("shape", [(7, 5), (900, 65), (3, 5000), (128, 10)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy_of_few_scores_is_that_of_the_table_bit_by_bit(
    reduction: str, shape: tuple[int, int]
) -> None:
    (x,) = operands((shape,))
    target = np.arange(len(x)) % shape[1]
    (results, wanted), (grads, slopes) = cross_entropy(x, target, reduction)
    for got, want in zip(results, wanted, strict=True):
        assert (got.dtype, got.shape) == (np.float32, np.shape(want))
        np.testing.assert_array_equal(got, want)
    assert grads[1:] == (None, None)
    np.testing.assert_array_equal(grads[0], slopes[0])


def test_cross_entropy_of_other_scores_is_left_to_the_row() -> None:
    (x,), labels = operands(((7, 5),)), np.arange(7) % 5
    many = np.ones((1 << 12, 1 << 5), np.float32)
    cases: list[tuple[Array, Array, str, dict[str, Any]]] = [
        (x, labels, "none", {}),
        (x, labels, "mean", {"ignore_index": 3}),
        (x, labels, "mean", {"label_smoothing": 0.5}),
        (x.astype(float), labels, "mean", {}),
        (many, np.zeros(len(many), int), "mean", {}),
        (x[:0], labels[:0], "sum", {}),
        (x[:1].reshape(5), np.array(3), "mean", {}),
    ]
    for scores, target, reduction, how in cases:
        (results, _), (grads, _) = cross_entropy(scores, target, reduction, **how)
        assert results is None and grads is None


@pytest.mark.parametrize("long", [1 << 16, 1 << 12])
@pytest.mark.parametrize("shape", [(1 << 12,), (3, 5000), (2, 3, 1 << 12)])
def test_norms_over_the_last_dims_are_those_of_the_table(
    shape: tuple[int, ...], long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "LONG", long)
    op, xp = TABLE["linalg_vector_norm"], get("cpu").xp
    written, (x,) = registry.FORWARDS[op.name], operands((shape,))
    for dim in (None, (-1,), tuple(range(-len(shape), 0)), (len(shape) - 1,)):
        for keepdim in (False, True):
            want = op.forward(xp, x.astype(float), 2, dim, keepdim)
            got = written(x, 2, dim, keepdim)
            assert (got.dtype, got.shape) == (np.float32, np.shape(want))
            np.testing.assert_allclose(got, want, 1e-6)
    others: list[tuple[Any, ...]] = [(x, 1), (x.astype(float), 2), (x[..., ::2], 2)]
    for args in [*others, (x[..., :1], 2, (-1,)), *[(x, 2, (0,))] * (x.ndim > 1)]:
        assert written(*args) is None


def test_a_reciprocal_root_is_that_of_the_table_bit_by_bit() -> None:
    op, x = TABLE["rsqrt"], abs(operands((SHAPE,))[0])
    written = registry.FORWARDS["rsqrt"]
    np.testing.assert_array_equal(written(x), op.forward(get("cpu").xp, x))
    assert written(x.astype(float)) is None and written(x.T) is None


def test_ends_are_those_of_the_table() -> None:
    ends = np.array([-np.inf, -1e30, -200, -0.0, 0, 200, 1e30, np.inf, np.nan], np.float32)
    for name in ("sigmoid", "silu", "gelu", "rsqrt", "mish", "leaky_relu", "reciprocal"):
        op = TABLE[name]
        with np.errstate(all="ignore"):
            got = registry.FORWARDS[name](ends)
            want = op.forward(get("cpu").xp, ends)
        np.testing.assert_array_equal(got, want)


def test_slopes_at_the_ends() -> None:
    ends = np.array([-1e18, -200, -10, -0.0, 0, 10, 200, 1e18, np.nan], np.float32)
    how: list[tuple[str, str, float]] = [
        ("gelu", "none", 0.5), ("gelu", "tanh", 0.5), ("silu", "", 0.5), ("mish", "", 0.6),
    ]  # fmt: skip
    for name, approximate, middle in how:
        params, saved = {"approximate": approximate}, {"self": ends}
        with np.errstate(all="ignore"):
            (slope,) = registry.BACKWARDS[name](np.ones_like(ends), saved, params, ["self"])
        want = [0, 0, 0, middle, middle, 1, 1, 1, np.nan]
        np.testing.assert_allclose(slope, want, 0, 1e-6 if name == "gelu" else 5e-4)


def test_training_takes_what_is_written() -> None:
    x = torch.randn(1 << 5, 8, 1 << 8, requires_grad=True)
    works: dict[str, Any] = {
        "gelu": F.gelu, "silu": F.silu, "native_layer_norm": lambda x: F.layer_norm(x, (1 << 8,)),
        "native_group_norm": lambda x: F.group_norm(x, 2),
    }  # fmt: skip
    called: set[Any] = set()
    for name, work in works.items():
        called.clear()
        sys.setprofile(lambda frame, event, _: called.add(frame.f_code))
        try:
            work(x).backward(x.detach())
        finally:
            sys.setprofile(None)
        tables = [registry.FORWARDS, registry.BACKWARDS]
        assert called >= {table[name].__code__ for table in tables if name in table}


@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
def test_quotients_are_numpy_s_bit_by_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside whole quotients, at the ends of float32, and of blocks that are left to NumPy."""
    monkeypatch.setattr(quotients, "BLOCK", 64)
    rng, run = np.random.default_rng(7), rows.forward_of(TABLE[name], get("cpu").xp)
    for scale in (1, 4, 24, 60):
        sizes = 2.0 ** rng.integers(-scale, scale + 1, (2, 3000))
        x, y = (rng.standard_normal((2, 3000)) * sizes).astype(np.float32)
        x[::3] = np.round(x[::3] / y[::3]) * y[::3]
        x[700:703] = np.inf, np.nan, -np.inf
        y[703:707] = 0, -0.0, np.inf, np.nan
        x[707:709] = 0, -0.0
        for other in (y, -np.abs(y), 2, -0.3, 1e-30, 3e38, float(y[0])):
            with np.errstate(all="ignore"):
                number = other if isinstance(other, np.ndarray) else np.float32(other)
                want = getattr(np, name)(x, number)
            got = run(x, other)
            assert np.array_equal(got, want, equal_nan=True)
            assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()
