"""Copies of arrays in the order of their dims, and into others: 16 bytes a thread where neighbours
stay so.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ...traced.arrays import NUMBERS, Trace, Traced, Untraceable
from ...wanted import wanted
from ..arrays import empty_like
from ..launches import order
from ..launches.rows import form_of_array, key_text, named, of_array_or_value, straight
from .expressions import checked
from .launch import KernelPlan, New, are_apart, dense_strides, graph_of
from .layouts import Operand, layout_of

__all__ = ["copies_in_place", "copy_into", "copyto", "dense", "dense_copy", "ones_like"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray
STORED: dict[int, np.dtype[Any]] = {n: np.dtype(f"int{8 * n}") for n in (1, 2, 4, 8)}
MOST_PLANS = 4096

_plans: dict[Any, KernelPlan | None] = {}


def dense(x: Array) -> Array:
    """An array whose elements lie one after another, in order."""
    if x.flags.c_contiguous:
        return x
    copy = dense_copy(x)
    return cupy.ascontiguousarray(x) if copy is None else copy


def dense_copy(x: Array) -> Array | None:
    """A copy in the order of the dims; None for elements of 16 bytes, and for none."""
    if not wanted.fused or type(x) is not ndarray or x.itemsize not in STORED or not x.size:
        return None
    key = x.dtype.num, x.shape, x.strides
    if key not in _plans:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = _plan(x)
    plan = _plans[key]
    return None if plan is None else plan.run([x])[0]


def _plan(x: Array) -> KernelPlan | None:
    stored, shape = STORED[x.itemsize], x.shape
    dense_ones = dense_strides(shape, x.itemsize)
    operands = [Operand(x.itemsize, shape, strides) for strides in (x.strides, dense_ones)]
    layout = layout_of(shape, operands)
    if layout is None:
        return None
    graph = graph_of("dense_copy", [Trace().input(0, stored)], [stored.name], False)
    return KernelPlan(graph, operands, [New(shape, x.dtype, None)], layout)


# Into arrays that there are -----------------------------------------------------------------------


def copyto(dst: Array, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    """NumPy's copyto."""
    if where is None and (type(src) is ndarray or type(src) in NUMBERS):
        allowed = casting == "unsafe" or type(src) is ndarray and src.dtype == dst.dtype
        if allowed and copy_into(dst, src) is not None:
            return
    order.copyto(dst, src, casting, where)


def ones_like(a: Array, dtype: Any = None) -> Array:
    """As NumPy's."""
    if not a._c_contiguous:
        return cupy.ones_like(a, dtype)
    array = empty_like(a, dtype)
    if copy_into(array, 1) is None:
        array.fill(1)
    return array


def copies_in_place(plain: Any) -> Any:
    """The row `copy` in the place of its first operand, which is answered if a kernel does it."""

    def run(dst: Array, src: Any) -> Any:
        return plain(dst, src) if copy_into(dst, src) is None else dst

    function: Any = run
    function.kept = copy_into.kept
    return function


def _copy_into(dst: Array, src: Any) -> Array | None:
    """Copies an array or a number into `dst`, which is answered; None where there is no kernel."""
    arrays = [src] if type(src) is ndarray else []
    plan = _plan_into(dst, src)
    if plan is None or not all(are_apart(x, dst) for x in arrays):
        return None
    plan.start([*arrays, dst])
    return dst


def _begin_into(dst: Array, src: Any) -> Any:
    result, plan = _copy_into(dst, src), _plan_into(dst, src)
    if result is None or plan is None:
        return result, None, None
    arrays = ["src"] if type(src) is ndarray else []
    shapes, dtypes = (
        (dst.shape, getattr(src, "shape", ())),
        (dst.dtype, getattr(src, "dtype", None)),
    )
    told: Any = shapes, {}, dtypes, None, dst.dtype.kind == "c"  # the `meta` of a node
    return result, plan.straight_change(["dst", "src"], arrays, "dst"), told


copy_into = straight(
    ["dst", "src"],
    lambda names: key_text(
        ["wanted.number", form_of_array(names[0]), of_array_or_value(names[1])], names
    ),
    _copy_into, _begin_into, within=True,
)  # fmt: skip


def _plan_into(dst: Array, src: Any) -> KernelPlan | None:
    if not wanted.fused or not dst.size:
        return None
    if type(src) is ndarray:
        value: Any = src.dtype.num, src.shape, src.strides
    elif type(src) in NUMBERS:
        value = named(src)
    else:
        return None
    key = dst.dtype.num, dst.shape, dst.strides, value
    if key not in _plans:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        try:
            _plans[key] = _new_plan_into(dst, src)
        except (Untraceable, ValueError, OverflowError):  # the general way says what is wrong
            _plans[key] = None
    return _plans[key]


def _new_plan_into(dst: Array, src: Any) -> KernelPlan | None:
    home = Operand(dst.itemsize, dst.shape, dst.strides)
    operands = [home]
    if type(src) is ndarray:
        if np.broadcast_shapes(src.shape, dst.shape) != dst.shape:
            return None
        operands.insert(0, Operand(src.itemsize, src.shape, src.strides))
    layout = layout_of(dst.shape, operands)
    if layout is None or _may_show_twice(home):
        return None
    result = _element(dst.dtype, src)
    inputs = [x.dtype.name for x in result.trace.nodes if x.function == "input"]
    checked(result.trace.nodes)
    graph = graph_of("copy_into", [result], inputs, not inputs)
    return KernelPlan(graph, operands, [New(dst.shape, result.dtype, dst.strides)], layout)


def _element(dtype: np.dtype[Any], src: Any) -> Traced:
    """An element of `src`, an array or a number, in a dtype; as it is stored if it is of that."""
    trace = Trace()
    if type(src) is not ndarray:
        with np.errstate(over="ignore"):
            number = dtype.type(src)  # rounded once
        return trace.number(float(number) if dtype.kind == "V" else number.item(), dtype)
    if src.dtype == dtype and dtype.itemsize in STORED:
        return trace.input(0, STORED[dtype.itemsize])
    if dtype.kind not in "fV" or src.dtype.kind not in "fVb":
        raise Untraceable("its numbers are whole, or complex")
    return trace.cast(trace.input(0, src.dtype), dtype)


def _may_show_twice(x: Operand) -> bool:
    """Whether several elements may be one place in memory."""
    reach = x.itemsize
    for step, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape) if n > 1):
        if step < reach:
            return True
        reach += step * (n - 1)
    return False
