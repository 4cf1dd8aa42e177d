"""Rows of the table by blocks compute what they compute at once, however their operands lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad.backends import get
from cugrad.backends.numpy import blocks, half, numkong, tables
from cugrad.backends.numpy.half import cast, narrowed_into, widened
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


@pytest.fixture(params=[True, False], ids=["NumKong", "NumPy alone"])
def numkong_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With the optional dependency, and without it."""
    if request.param:
        pytest.importorskip("numkong", reason="NumKong is not installed")
    else:
        monkeypatch.setattr(numkong, "_numkong", lambda: None)
    return bool(request.param)


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


def test_all_numbers_of_float16_widen_exactly(
    numkong_or_not: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_float32_narrows_as_numpy_rounds_it(numkong_or_not: bool) -> None:
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
def test_sums_and_products_of_half_precision_are_rounded_once(
    kind: Any, function: Any, numkong_or_not: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numkong, "BLOCK", 9999)
    numkong._negative_zeros.cache_clear()
    monkeypatch.setattr(blocks, "BLOCK", 1 << 15)
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    rng, name = np.random.default_rng(0), function.__name__
    run = blocks.forward_by_blocks(TABLE["mul" if name == "multiply" else name[:3]], function)
    for scale in (1.0, 0.4, 1e-4, 1e-6, 1e-7):
        with np.errstate(all="ignore"):
            some = (every.astype(np.float32) * np.float32(scale)).astype(kind)
        for other in (some, some[::-1].copy(), rng.permutation(some), rng.permutation(some)):
            for shape in ((-1,), (2, -1)):
                a, b = some.reshape(shape), other.reshape(shape)
                with np.errstate(all="ignore"):
                    want = function(a.astype(np.float32), b.astype(np.float32)).astype(kind)
                    direct = numkong.sum_or_product(function, a, b)
                    results = [x for x in (run(a, b), direct) if x is not None]
                    no_number = np.isnan(want.astype(np.float32))
                    for result in results:
                        assert (result.dtype, result.shape) == (want.dtype, want.shape)
                        nans = np.isnan(result.astype(np.float32))
                        np.testing.assert_array_equal(nans, no_number)
                        bits = [x.view(np.int16)[~no_number] for x in (result, want)]
                        np.testing.assert_array_equal(*bits)
                assert (direct is None) is not numkong_or_not
    numkong._negative_zeros.cache_clear()


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_numkong_is_not_asked_where_arrays_lie_otherwise(kind: Any) -> None:
    pytest.importorskip("numkong", reason="NumKong is not installed")
    x = np.ones(2 * numkong.LEAST, kind)
    assert numkong.sum_or_product(np.add, x, x) is not None
    single = x.astype(np.float32)
    for a, b in ((x, x[1:]), (x[::2], x[::2]), (x, np.ones(())), (x, x[:1]), (x[:8], x[:8]), (x, 2),
                 (x, single), (x.reshape(2, -1), x.reshape(-1, 2).T)):  # fmt: skip
        assert numkong.sum_or_product(np.add, a, b) is None
    assert not numkong.cast_quickly(x[::2], single[::2])
    assert not numkong.cast_quickly(single, x[:1])


@pytest.mark.parametrize("kind", [np.float16, bfloat16.numpy], ids=["float16", "bfloat16"])
def test_casts_to_half_precision_keep_what_is_no_number(kind: Any, numkong_or_not: bool) -> None:
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0x7FFF8000, 0x7FC00000, 0x7F800000, 0x7F7FFFFF],
                        np.uint32)  # fmt: skip
    signed = np.concatenate([patterns, patterns | np.uint32(1 << 31)])
    for some in (signed, signed[3:6], signed[9:], signed[:3]):
        single = np.tile(some, half.FEW).view(np.float32)
        with np.errstate(all="ignore"):
            result, want = cast(single, np.dtype(kind)), single.astype(kind)
        no_number = np.isnan(single)
        np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), no_number)
        bits = [x.view(np.int16)[~no_number] for x in (result, want)]
        np.testing.assert_array_equal(*bits)


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


# Copies by columns --------------------------------------------------------------------------------

TURNED: dict[str, Any] = {
    "transposed": lambda x: x.T, "channels": lambda x: np.moveaxis(x, 0, -1), "rows": lambda x: x,
    "backwards": lambda x: x.T[::-1, ::-1], "part": lambda x: x.T[1:, 1:],
    "every other": lambda x: x[..., ::2].T, "a dim of one": lambda x: x.T[..., None],
    "repeated": lambda x: np.broadcast_to(x[0], (3, *x[0].shape)).T,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "float64", "bool", "int16", "complex128"])
@pytest.mark.parametrize("shape", [(256, 300), (33, 40, 50), (7, 9000), (9000, 7), (20, 12, 9, 31)])
@pytest.mark.parametrize("turn", TURNED)
def test_copies_by_columns_are_copies(turn: str, shape: tuple[int, ...], kind: str) -> None:
    xp = get("cpu").xp
    x = TURNED[turn](np.arange(np.prod(shape)).reshape(shape).astype(kind))
    want = x.copy("C")
    for got in (xp.copied(x, "C"), xp.ascontiguousarray(x), xp.copied(x, "K")):
        np.testing.assert_array_equal(got, want)
    assert xp.copied(x, "C").strides == want.strides and not np.shares_memory(got, x)
    for into in TURNED:
        whole = np.zeros(shape, kind)
        home = TURNED[into](whole)
        if home.shape == x.shape and home.flags.writeable:
            xp.copyto(home, x)
            np.testing.assert_array_equal(home, want)
            xp.copyto(home, home[::-1])  # of memory that is written
            np.testing.assert_array_equal(home, want[::-1])


def test_some_of_them_are(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(blocks, "by_columns", lambda *arrays: taken.append(arrays) or False)
    for x in (np.zeros((256, 300)).T, np.zeros((300, 256)), np.zeros((3, 4)).T):
        get("cpu").xp.copied(x, "C")
    assert len(taken) == 1
    monkeypatch.undo()
    assert blocks.by_columns(np.zeros((300, 256)), np.zeros((256, 300)).T)
