"""Rows of the table by blocks compute what they compute at once, however their operands lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad.backends import get
from cugrad.backends.numpy import blocks, half, tables
from cugrad.backends.numpy.half import cast, narrowed_into, widened
from cugrad.backends.numpy.written import halves
from cugrad.dtypes import bfloat16
from cugrad.nn import functional as F
from cugrad.ops import apart
from cugrad.ops.table import ELEMENTWISE, TABLE, raw

Array = np.ndarray[Any, Any]
SHAPE = (3, 4, 5)
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "in order": lambda x: x,
    "channels last": lambda x: x.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "turned round": lambda x: x.T.copy().T,
    "every second": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "repeated": lambda x: np.broadcast_to(x[:1], SHAPE),
    "a column": lambda x: x[:, :1].copy(),
    "a row": lambda x: x[0, 0],
    "no dims": lambda x: x[0, 0, 0, ...].copy(),
}
COMPOSITE = [op for op in TABLE.values() if op.kind == ELEMENTWISE and op.ufunc is None
             and op.name in ("gelu", "silu", "gate", "lerp", "addcmul", "xlogy", "log_sigmoid",
                             "softplus", "mish", "huber", "elu", "sgn", "rsqrt")]  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 7)
    monkeypatch.setattr(blocks, "LEAST", 0)


def operands(op: Any, layout: str, kind: Any) -> list[Array]:
    """The first in order where a layout is of fewer elements, so that there is something whole."""
    rng = np.random.default_rng(len(op.inputs))
    arrays = [(rng.random(SHAPE) + 0.5).astype(kind) for _ in op.inputs]
    last = len(arrays) - 1
    return [LAYOUTS[layout](x) if i == last or not last else x for i, x in enumerate(arrays)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", COMPOSITE, ids=lambda op: op.name)
def test_blocks_change_no_value_and_no_layout(op: Any, layout: str) -> None:
    arrays = operands(op, layout, np.float32)
    xp = get("cpu").xp
    plain = lambda *args: op.forward(xp, *args)
    whole = np.asarray(plain(*arrays))
    result = np.asarray(blocks.forward_by_blocks(op, plain)(*arrays))
    np.testing.assert_array_equal(result, whole)
    assert (result.dtype, result.strides) == (whole.dtype, whole.strides)
    mask = (1 << len(arrays)) - 1
    saved = [{**dict(zip(op.inputs, arrays)), "result": whole}[name] for name in op.saves(mask)]
    g = np.random.default_rng(3).random(whole.shape).astype(np.float32)
    dtypes = tuple(x.dtype for x in arrays)
    meta = (tuple(x.shape for x in arrays), op.defaults, dtypes, None, False)
    grads = blocks.gradients_by_blocks(op, mask, raw)
    assert grads is not None
    wanted = raw.fitted(op.gradients(mask)(raw, g, saved, meta[0], op.defaults), meta[0], dtypes)
    for got, want in zip(grads(g, saved, meta) or wanted, wanted, strict=True):
        if want is not None:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", COMPOSITE, ids=lambda op: op.name)
def test_half_precision_is_rounded_once(op: Any, kind: Any) -> None:
    xp = get("cpu").xp
    for layout in LAYOUTS:
        arrays = operands(op, layout, kind)
        result = blocks.forward_by_blocks(op, lambda *args: op.forward(xp, *args))(*arrays)
        exact = op.forward(xp, *[x.astype(np.float32) for x in arrays])
        assert result.dtype == kind
        np.testing.assert_array_equal(result, np.asarray(exact).astype(kind))


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_values_in_tables_are_those_that_are_computed(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    xp = get("cpu").xp
    monkeypatch.setattr(blocks, "BLOCK", 1 << 15)  # tables are made quickly
    asked = [(op, ()) for op in COMPOSITE if len(op.inputs) == 1] + [(TABLE["gelu"], ("tanh",))]
    asked += [(TABLE["elu"], (1,)), (TABLE["elu"], (2.0,)), (TABLE["sqrt"], ())]
    for op, args in asked:
        forward = blocks.forward_by_blocks(op, lambda *args, op=op: op.forward(xp, *args))
        for layout in LAYOUTS:
            (x,) = operands(op, layout, kind)
            for sign in (x, np.asarray(-x)):
                monkeypatch.setattr(tables, "MANY", 1 << 30)
                with np.errstate(all="ignore"):
                    want = forward(sign, *args)
                monkeypatch.setattr(tables, "MANY", 0)
                got = forward(sign, *args)
                np.testing.assert_array_equal(got.astype(float), want.astype(float))
                assert got.dtype == want.dtype
                assert got.strides == want.strides or layout == "repeated"


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_positive_parts_of_all_numbers_are_those_of_numpy(kind: Any) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    single = every.astype(np.float32)
    for some in (every, every[single == single], every[:0], every[::2]):
        with np.errstate(invalid="ignore"):
            want = np.maximum(some.astype(np.float32), 0)
        np.testing.assert_array_equal(get("cpu").xp.positive_part(some).astype(np.float32), want)


def test_all_numbers_of_float16_widen_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    for numbers in (every, finite, finite[::2], finite[:3]):
        np.testing.assert_array_equal(widened(numbers), numbers.astype(np.float32))
    monkeypatch.setattr(half, "MANY", 5000)
    for numbers in (finite, finite.reshape(2, -1).T, finite[:, None]):
        single = cast(numbers, np.dtype(np.float32))
        np.testing.assert_array_equal(single, numbers.astype(np.float32))
        np.testing.assert_array_equal(cast(single, numbers.dtype), numbers)
        assert cast(single, np.dtype(float)).dtype == float
    bits = widened(finite).view(np.int32)
    np.testing.assert_array_equal(bits, finite.astype(np.float32).view(np.int32))


def test_float32_narrows_as_numpy_rounds_it() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = np.sort(every[np.isfinite(every)]).astype(np.float32)
    between = (finite[1:] + finite[:-1]) / 2  # of two the even one
    rng = np.random.default_rng(0)
    cases = [finite, between, np.nextafter(between, 9), np.float32([1e5, -np.inf, np.nan] * 999)]
    cases += [(rng.standard_normal(5000) * s).astype(np.float32) for s in (1e-8, 1e-6, 1e-4, 9.0)]
    for x in [*cases, finite[::2]]:
        out = np.empty(x.shape, np.float16)
        with np.errstate(all="ignore"):
            narrowed_into(out, x)
            want = x.astype(np.float16)
        np.testing.assert_array_equal(out.view(np.int16), want.view(np.int16))


@pytest.mark.parametrize("function", [np.add, np.subtract, np.multiply], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_sums_and_products_in_words_are_rounded_once(
    kind: Any, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "WORDS", 9999)
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    rng, taken = np.random.default_rng(0), 0
    for scale in (1.0, 0.4, 1e-4, 1e-6, 1e-7):
        with np.errstate(all="ignore"):
            single = every.astype(np.float32) * np.float32(scale)
            some = single[np.isfinite(single)].astype(kind)
        some = some[: some.size // 2 * 2]
        for other in (some, some[::-1].copy(), rng.permutation(some), rng.permutation(some)):
            for shape in ((-1,), (2, -1)):
                a, b = some.reshape(shape), other.reshape(shape)
                with np.errstate(all="ignore"):
                    want = function(a.astype(np.float32), b.astype(np.float32)).astype(kind)
                    result = halves.in_words(function, a, b)
                if result is None:
                    continue
                taken += 1
                assert (result.dtype, result.shape) == (want.dtype, want.shape)
                with np.errstate(all="ignore"):
                    no_number = np.isnan(want.astype(np.float32))
                    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), no_number)
                bits = [x.view(np.int16)[~no_number] for x in (result, want)]
                np.testing.assert_array_equal(*bits)
    assert taken >= 10


NUMBERS = (1.5, -0.1, 3, 2.0**-13, 1e-3 / 3, 7.7e-6, 0.0, -0.0, 1000.0, 65519.0, 1e30)


@pytest.mark.parametrize("function", [np.add, np.subtract, np.multiply], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_numbers_beside_words_are_read_as_float32(
    kind: Any, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "WORDS", 9999)
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    single, taken = every.astype(np.float32), 0
    for most in (np.inf, 400.0, 1.0, 1e-4):
        x = every[abs(single) < most]
        x = np.concatenate([x, x])
        for number in NUMBERS:
            for args in ((x, number), (number, x)):
                wide = [v if v is number else v.astype(np.float32) for v in args]
                with np.errstate(all="ignore"):
                    want = function(*wide).astype(kind)
                    result = halves.in_words(function, *args)
                if result is not None:
                    taken += 1
                    assert result.dtype == want.dtype
                    np.testing.assert_array_equal(*[v.view(np.int16) for v in (result, want)])
    assert taken >= 20
    for declined in (1e39, float("nan"), True, np.float32(1)):
        assert halves.in_words(function, x, declined) is None


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_words_are_declined_where_they_would_not_tell(kind: Any) -> None:
    x = np.ones(halves.LEAST, kind)
    assert halves.in_words(np.add, x, x) is not None
    single = x.astype(np.float32)
    for a, b in ((x, x[1:]), (x[1:], x[1:]), (x, np.ones(())), (x, x[:1]), (x[:8], x[:8]),
                 (x, single), (x.reshape(2, -1), x.reshape(-1, 2).T)):  # fmt: skip
        assert halves.in_words(np.add, a, b) is None
    no_number = x.copy()
    no_number[7] = np.nan
    for function in (np.add, np.multiply):
        result = np.asarray(blocks.forward_by_blocks(TABLE["add"], function)(x, no_number))
        np.testing.assert_array_equal(np.flatnonzero(result != result), [7])
    large = torch.full((halves.LEAST,), 6e4, dtype=torch.float16)
    assert (large + large).isinf().all() and (large - large == 0).all()
    assert (large * float("inf") - large * float("inf")).isnan().all()
    assert (large * large).isinf().all()


@pytest.mark.parametrize("places", [[5], [10, 11, 20000], slice(None)])
def test_products_that_would_be_rounded_twice_are_computed_again(places: Any) -> None:
    factors = float.fromhex("0x1.3ep-8"), float.fromhex("-0x1.284p-13")
    a, b = np.ones((2, 2 * halves.LEAST), np.float16)
    a[places], b[places] = factors
    want = (a.astype(np.float32) * b.astype(np.float32)).astype(np.float16)
    product = halves.in_words(np.multiply, a.reshape(2, -1), b.reshape(2, -1))
    assert product is not None
    np.testing.assert_array_equal(product.reshape(-1), want)


ROWS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: F.softmax(x, -1), "softmax of the middle": lambda x: F.softmax(x, 1),
    "softmax of the first": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, (6,), x[0, 0], x[1, 1]),
    "layer_norm of two dims": lambda x: F.layer_norm(x, (4, 6), x[0]),
    "group_norm": lambda x: F.group_norm(x, 2, x[0, :, 0], x[1, :, 0]),
    "cross_entropy": lambda x: F.cross_entropy(x, (x[:, 0] > 0).long()),
    "smoothed": lambda x: F.cross_entropy(x, (x[:, 0] > 0).long(), label_smoothing=0.1),
}  # fmt: skip


@pytest.mark.parametrize("work", ROWS.values(), ids=ROWS)
def test_a_few_rows_at_a_time_change_no_value(
    work: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "MANY", 1)
    monkeypatch.setattr(apart, "ROOMS", 1)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 4, 6)))
    for values in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        results = []
        for room in (None, 9, 30):
            monkeypatch.setattr(get("cpu").xp, "cache_elements", room)
            leaf = values.detach().requires_grad_()
            y = work(leaf)
            (slope,) = torch.autograd.grad((y * torch.arange(y.numel()).view(y.shape)).sum(), leaf)
            results.append((y.detach().numpy(), slope.numpy()))
        for some in results[1:]:
            for got, want in zip(some, results[0], strict=True):
                np.testing.assert_allclose(got, want, 1e-12, 1e-12)
