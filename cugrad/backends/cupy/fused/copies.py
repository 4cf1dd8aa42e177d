"""Copies of arrays in the order of their dims, 16 bytes a thread where neighbours stay so."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ...traced.arrays import Trace
from ...wanted import wanted
from .launch import KernelPlan, New, dense_strides, graph_of
from .layouts import Operand, layout_of

__all__ = ["dense", "dense_copy"]

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
