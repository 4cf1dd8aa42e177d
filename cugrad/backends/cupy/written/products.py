"""Affine maps: one product by cuBLAS, and one kernel that adds the bias where it lies."""

from __future__ import annotations

from typing import Any

import cupy

from ...traced.arrays import Trace
from ..arrays import new_array
from ..fused.rows import plan_of
from ..gemm import MOST_PLANS, Product, product_of
from .registry import forward

__all__: list[str] = []

Array = Any  # cupy.ndarray

_plans: dict[Any, Any] = {}  # by how the operands lie: a product and a kernel, or None


@forward("linear")
def linear(input: Array, weight: Array, bias: Array | None) -> Array | None:
    """`input @ weight.T + bias`; None for what takes more than one product."""
    key: Any = input.dtype.num, input.shape, weight.dtype.num, weight.shape
    if not (input._c_contiguous and weight._c_contiguous):
        key = *key, input.strides, weight.strides
    if bias is not None:
        key = *key, bias.dtype.num, bias.shape, bias.strides
    try:
        plan = _plans[key]
    except KeyError:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = _plan(input, weight, bias)
    if plan is None:
        return None
    product, kernel = plan
    out = new_array(product.form)
    product.into(input, weight, out)
    if kernel is not None:
        kernel.change(out, bias)
    return out


def _plan(input: Array, weight: Array, bias: Array | None) -> tuple[Product, Any] | None:
    """The product for a weight that is read as its transpose, and the kernel for the bias."""
    if input.dtype != weight.dtype or weight.ndim != 2 or input.ndim < 2:
        return None
    product = product_of(
        input.dtype, input.shape, input.strides, weight.shape[::-1], weight.strides[::-1]
    )
    if product is None or bias is None:
        return None if product is None else (product, None)
    if bias.dtype != input.dtype or bias.shape != product.shape[-1:]:
        return None
    trace, out = Trace(), cupy.ndarray(product.shape, product.dtype)
    term = trace.apply("add", trace.input(0, out.dtype), trace.input(1, bias.dtype))
    return product, plan_of("add_bias", trace, [term], [out, bias], False)
