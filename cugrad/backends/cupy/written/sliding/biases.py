"""Biases of channels, added where a result lies."""

from __future__ import annotations

from typing import Any

from ....traced.arrays import Trace
from ...fused.launch import KernelPlan
from ...fused.rows import plan_of

__all__ = ["add_bias"]

Array = Any  # cupy.ndarray
MOST_PLANS = 4096

_plans: dict[Any, KernelPlan] = {}


def add_bias(y: Array, bias: Array) -> None:
    """y += bias, of which each channel has one, in whichever order y lies."""
    column = bias.reshape(-1, *(1,) * (y.ndim - 2))
    key = y.dtype.num, y.shape, y.strides, column.strides
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        trace = Trace()
        term = trace.apply("add", trace.input(0, y.dtype), trace.input(1, bias.dtype))
        plan = _plans[key] = plan_of("add_bias", trace, [term], [y, column], False)
    plan.change(y, column)
