"""Elementwise rows by blocks of elements that stay in a processor's cache.

What a row computes on its way to a result is as large as a block then, not as its operands: it is
neither written to memory nor read again. Half precision is computed in float32, and rounded once.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from . import tables
from .half import HALF, SINGLE, cast, is_half, narrowed_into, widened, widened_into
from .numkong import sum_or_product

__all__ = [
    "LEAST", "along_rows", "ascontiguousarray", "by_blocks", "copied", "copyto",
    "forward_by_blocks", "gradients_by_blocks", "rounded_once",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Values = Sequence[Any]  # arrays, numbers, None

BLOCK = 1 << 17  # elements: fewer would cost more calls of NumPy than they save of its time
LEAST = 1 << 22  # elements from which on blocks pay: fewer stay in the last cache as they are
LINE = 64  # bytes of a cache
MANY, LEAST_COLUMNS = 1 << 15, 1 << 12  # elements of a copy, and of a part of one
LONG, LEAST_BUFFER = 512, 16  # elements of a row, and of NumPy's smallest buffer
# What NumPy computes of float16 by vectors, in float32 as well, where the processor has them.
QUICK = frozenset(["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "tan", "sinh",
                   "cosh", "tanh", "arcsin", "arctan", "arcsinh"])  # fmt: skip
SUMS = frozenset(["add", "subtract", "multiply"])
# What takes less time than a table where float32 takes as little to be made of it and rounded.
CHEAP = frozenset(["square", "reciprocal", "floor", "ceil", "trunc"])
AS_INTEGERS = frozenset(["positive_part"])  # what is computed of half precision as it is
WORKING = frozenset(["BINARY_OP", "CALL", "CALL_KW", "COMPARE_OP", "UNARY_NEGATIVE"])


@cache
def is_composite(function: Callable[..., Any]) -> bool:
    """Whether a forward or a formula passes over its elements more than once."""
    return sum(step.opname in WORKING for step in dis.get_instructions(function)) > 1


def by_blocks(function: Callable[..., Any], operands: Values, dense: bool = False) -> Any:
    """`function(*operands)` of an elementwise function: an array, or a tuple of them or None.

    None where operands lie so that blocks would not tell how the result should; that of a `dense`
    row lies in the order of its dims.
    """
    if any(isinstance(x, np.ndarray) and type(x) is not np.ndarray for x in operands):
        return None  # in memory that says who reads it
    half = next((x.dtype for x in operands if type(x) is np.ndarray and is_half(x.dtype)), None)
    shape = np.broadcast_shapes(*[x.shape for x in operands if type(x) is np.ndarray])
    order = _order_of(operands, shape)
    if dense and order != tuple(range(len(shape))):
        order = None
    if half is not None and (order is None or prod(shape) <= BLOCK):
        return rounded_once(function, operands, half)
    if order is None:
        return None
    laid = tuple([shape[axis] for axis in order])
    turned = [_turned(x, shape, order) for x in operands]
    arrays = [i for i, x in enumerate(turned) if type(x) is np.ndarray]
    if all(turned[i].flags.c_contiguous for i in arrays):
        turned = [x.reshape(-1) if type(x) is np.ndarray else x for x in turned]
        results = _computed(function, turned, arrays, (prod(shape),), half)
    else:
        results = _computed(function, turned, arrays, laid, half)
    back = np.argsort(order)
    shaped = [x if x is None else x.reshape(laid).transpose(back) for x in results]
    return shaped[0] if type(results) is list else tuple(shaped)


def copied(x: Array, order: Any = "C") -> Array:
    """`x.copy(order)`, by columns where that is quicker."""
    if order == "C" and x.size >= MANY and not x.flags.c_contiguous:
        out = np.empty(x.shape, x.dtype)
        if by_columns(out, x):
            return out
    return x.copy(order)


def copyto(dst: Array, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """NumPy's, by columns where that is quicker."""
    if (
        where is True and type(src) is np.ndarray is type(dst) and src.size >= MANY
        and src.shape == dst.shape and src.dtype == dst.dtype
        and not (src.flags.c_contiguous and dst.flags.c_contiguous)
        and not np.may_share_memory(dst, src) and by_columns(dst, src)
    ):  # fmt: skip
        return
    np.copyto(dst, src, casting, where)


def by_columns(dst: Array, src: Array) -> bool:
    """Copies an array whose rows lie across the lines of a cache, some columns at a time; False
    where it is another.

    NumPy copies row by row, and so reads a line for each number, and again for the next row.
    """
    long = [axis for axis, n in enumerate(src.shape) if n > 1]
    if len(long) < 2:
        return False
    row = min(long, key=lambda axis: abs(dst.strides[axis]))
    n, width = src.shape[row], LINE // src.itemsize
    near = any(0 < abs(src.strides[k]) < LINE and src.shape[k] >= width for k in long if k != row)
    width = max(width, -(-LEAST_COLUMNS * n // src.size))
    if not near or abs(src.strides[row]) < LINE or 2 * width > n:
        return False
    lead = (slice(None),) * row
    for at in range(0, n, width):
        place = *lead, slice(at, at + width)
        dst[place] = src[place]
    return True


def ascontiguousarray(x: Any, dtype: Any = None) -> Array:
    """NumPy's, with copies as above."""
    if dtype is None and type(x) is np.ndarray and not x.flags.c_contiguous:
        return copied(x)
    return np.ascontiguousarray(x, dtype)


@contextmanager
def along_rows(length: int) -> Iterator[None]:
    """Has NumPy read an operand that is repeated, a number a row or one row for all, where it lies.

    NumPy copies it into a buffer, to compute several rows at a time, which takes as long as the
    computation, where rows are not short. It does not where the buffer is smaller than a row.
    """
    if length < LONG:
        yield
        return
    before = np.setbufsize(LEAST_BUFFER)  # of this thread
    try:
        yield
    finally:
        np.setbufsize(before)


def rounded_once(function: Callable[..., Any], operands: Values, half: Any) -> Any:
    """`function(*operands)`, computed in float32 where they are in half precision."""
    values = function(*[_wide(x) for x in operands])
    narrow = lambda x: cast(x, half) if getattr(x, "dtype", None) == SINGLE else x
    return tuple(map(narrow, values)) if type(values) is tuple else narrow(values)


def _wide(x: Any) -> Any:
    if not hasattr(x, "dtype") or not is_half(x.dtype):
        return x
    if isinstance(x, np.generic):
        return float(x)
    return widened(x) if isinstance(x, np.ndarray) else x.astype(SINGLE)  # of a vmap


def _order_of(operands: Values, shape: tuple[int, ...]) -> Any:
    """The axes of a result in the order in which it lies, as NumPy would lay it; None: by NumPy."""
    axes = tuple(range(len(shape)))
    order = None
    for x in operands:
        if type(x) is not np.ndarray or x.shape != shape or (0 in x.strides and x.size > 1):
            continue  # a part that is repeated says nothing
        if x.flags.c_contiguous:
            lies: Any = axes
        else:
            lies = tuple(sorted(axes, key=lambda axis: (-x.strides[axis], axis)))
            if not x.transpose(lies).flags.c_contiguous:
                return None
        if order is not None and lies != order:
            return None
        order = lies
    return order or axes


def _turned(x: Any, shape: tuple[int, ...], order: Any) -> Any:
    """An operand as broadcast to the whole shape, with the axes in their order; or a number."""
    if type(x) is not np.ndarray:
        return _wide(x)
    if not x.ndim:
        return _wide(x)
    if x.shape != shape:  # widened before it is repeated: once, and not in the order of a copy
        x = np.broadcast_to(_wide(x), shape)
    return x.transpose(order)


def _computed(
    function: Callable[..., Any], operands: list[Any], arrays: list[int], shape: tuple[int, ...],
    half: Any,
) -> list[Any] | tuple[Any, ...]:  # fmt: skip
    """The results, a list of one where the function does not answer with a tuple."""
    arrays = [i for i in arrays if operands[i].shape == shape]
    half_ones = [i for i in arrays if is_half(operands[i].dtype)]
    parts, single = list(operands), False
    results: list[Any] = []
    rooms: dict[int, Array] = {}
    for place in places(shape):
        for i in arrays:
            parts[i] = operands[i][place]
        for i in half_ones:
            room = rooms.get(i)
            if room is None or room.shape != parts[i].shape:
                room = rooms[i] = np.empty(parts[i].shape, SINGLE)
            widened_into(room, parts[i])
            parts[i] = room
        values = function(*parts)
        if not results:
            single = type(values) is not tuple
            for x in (values,) if single else values:
                kind = half if half is not None and x is not None and x.dtype == SINGLE else None
                results.append(x if x is None else np.empty(shape, kind or x.dtype))
        for result, x in zip(results, (values,) if single else values):
            if x is None:
                continue
            if half is not None and x.dtype == SINGLE:
                narrowed_into(result[place], x, computed=True)
            else:
                result[place] = x
    return results if single else tuple(results)


def places(shape: tuple[int, ...]) -> Iterator[Any]:
    """Indices of the blocks of a shape, whose last axes are whole."""
    axis, size = len(shape) - 1, 1
    while axis > 0 and size * shape[axis] <= BLOCK:
        size *= shape[axis]
        axis -= 1
    step = max(1, BLOCK // max(1, size))
    starts = range(0, shape[axis], step)
    for before in product(*map(range, shape[:axis])):
        for start in starts:
            yield (*before, slice(start, start + step))


def forward_by_blocks(op: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The forward of an elementwise row, whose `plain` one is a function of its arguments.

    Its `wide` is the one for operands of which none is in half precision.
    """
    several = op.ufunc is None and op.passes != 1 and is_composite(op.forward)
    widens, alone = op.widens and op.ufunc not in AS_INTEGERS, len(op.inputs) == 1
    quick = op.ufunc in QUICK
    sums = getattr(np, op.ufunc) if op.ufunc in SUMS else None

    def blocked(*args: Any, **params: Any) -> Any:
        return by_blocks(partial(plain, **params) if params else plain, args, op.dense)

    def forward(*args: Any, **params: Any) -> Any:
        x = args[0] if isinstance(args[0], np.ndarray) else args[1]
        value = None
        if widens and is_half(x.dtype) and not (quick and x.dtype is HALF):
            if sums is not None and len(args) == 2 and not params:
                value = sum_or_product(sums, *args)
            elif alone and x.size >= tables.MANY and (x.dtype is HALF or op.ufunc not in CHEAP):
                value = _by_table(blocked, op.dense, *args, **params)
            if value is None:
                value = blocked(*args, **params)
        elif several and x.size >= LEAST and x.dtype.kind == "f":
            value = blocked(*args, **params)
        return plain(*args, **params) if value is None else value

    forward.wide = forward if several else plain  # type: ignore[attr-defined]
    return forward


def _by_table(
    function: Callable[..., Any], dense: bool, x: Array, *args: Any, **params: Any
) -> Any:
    """A function of one operand in half precision, whose other arguments are plain; or None."""
    table = tables.table_of(function, x.dtype, args, params)
    if table is None:
        return None
    return by_blocks(partial(tables.looked_up, table), (x.view(np.uint16),), dense)


def gradients_by_blocks(op: Any, mask: int, raw: Any) -> Callable[..., Any] | None:
    """`gradients(g, saved, meta)` of an elementwise row, None where its formulas pass `g` on.

    It answers None where it leaves the gradients to the formulas. Its `wide` is whether float32 and
    float64 gain too.
    """
    formulas = [f for i, f in enumerate(op.formulas) if f is not None and mask >> i & 1]
    names = {name for f in formulas for name in f.__code__.co_varnames[: f.__code__.co_argcount]}
    if all(_passes(f) for f in formulas) or any(name.endswith("_shape") for name in names):
        return None
    formula = op.gradients(mask)
    wide = any(is_composite(f) for f in formulas)

    def gradients(g: Array, saved: Any, meta: Any) -> Any:
        half = is_half(g.dtype)
        if not (op.widens if half else wide and g.dtype.kind == "f"):
            return None
        plain: Any = (), {}, (), None, False
        shapes, params, dtypes, compute, conjugates = plain if meta is None else meta
        if compute is not None or conjugates:
            return None
        for x in saved:
            if hasattr(x, "dtype") and not isinstance(x, (np.ndarray, np.generic)):
                return None  # an array of a vmap
        grads = by_blocks(lambda g, *saved: formula(raw, g, saved, shapes, params), (g, *saved))
        return grads if grads is None or meta is None else raw.fitted(grads, shapes, dtypes)

    gradients.wide = wide  # type: ignore[attr-defined]
    return gradients


def _passes(formula: Callable[..., Any]) -> bool:
    """Whether a formula is `lambda g: g`."""
    steps = [s.opname for s in dis.get_instructions(formula)]
    return formula.__code__.co_argcount == 1 and not any(name in WORKING for name in steps)
