"""Affine maps: one product by cuBLAS, and one kernel that adds the bias where it lies; or one
product by cuBLASLt for both.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy

from ...traced.arrays import Trace
from ...wanted import wanted
from ..aligned.products import one_copy_of, prefers_copies
from ..cublaslt.products import BIAS, BIAS_GRADIENT, EpilogueProduct
from ..fused.launch import KernelPlan
from ..fused.rows import plan_of, sum_of
from ..gemm import MOST_PLANS, Product, gemm_of, matmul
from .launch import FLOATS, name_of
from .registry import NodeCall, backward, forward

__all__: list[str] = []

Array = Any  # cupy.ndarray


class AffinePlan(NamedTuple):
    """How an affine map is computed: without a bias the product is all of it."""

    product: Product
    kernel: KernelPlan | None = None
    whole: EpilogueProduct | None = None


_plans: dict[Any, AffinePlan | None] = {}  # by how the operands lie
_sums: dict[Any, EpilogueProduct | None] = {}


@forward("linear", keeps=True)
def linear(input: Array, weight: Array, bias: Array | None) -> Array | None:
    """`input @ weight.T + bias`; None for what takes more than one product."""
    key: Any = input.dtype.num, input.shape, weight.dtype.num, weight.shape, wanted.tf32
    if not (input._c_contiguous and weight._c_contiguous):
        key = *key, input.strides, weight.strides
    if bias is not None:
        key = *key, bias.dtype.num, bias.shape, bias.strides
    try:
        plan = _plans[key]
    except KeyError:
        plan = _kept(_plans, key, _plan(input, weight, bias))
    if plan is None:
        return None
    product, kernel, whole = plan
    if wanted.cublaslt and whole is not None:
        out = whole.run(input, weight, bias)
        if out is not None:
            return out
    out = product.run(input, weight)
    if kernel is not None:
        kernel.change(out, bias)
    return out


def _kept(plans: dict[Any, Any], key: Any, plan: Any) -> Any:
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[key] = plan
    return plan


def _plan(input: Array, weight: Array, bias: Array | None) -> AffinePlan | None:
    """The product for a weight that is read as its transpose, and the kernel for the bias."""
    if input.dtype != weight.dtype or weight.ndim != 2 or input.ndim < 2:
        return None
    dtype = input.dtype
    if name_of(dtype) not in FLOATS:
        return None
    gemm = gemm_of(dtype, input.shape, input.strides, weight.shape[::-1], weight.strides[::-1])
    if gemm is None:
        return None
    product = Product(gemm[0], dtype, gemm[1])
    if bias is None:
        return AffinePlan(product)
    if bias.dtype != dtype or bias.shape != product.shape[-1:]:
        return None
    trace, out = Trace(), cupy.ndarray(product.shape, dtype)
    term = trace.apply("add", trace.input(0, dtype), trace.input(1, dtype))
    kernel = plan_of("add_bias", trace, [term], [out, bias], False)
    passes = 2 * prod(product.shape) * dtype.itemsize  # the kernel for the bias reads and writes
    if not bias._c_contiguous or prefers_copies(gemm[0], dtype, passes):
        return AffinePlan(product, kernel)
    return AffinePlan(product, kernel, EpilogueProduct(*gemm, dtype, BIAS))


@forward("mm", "bmm", "matmul", keeps=True)
def product(self: Array, other: Array) -> Array | None:
    """By one call of cuBLAS; None for vectors, and for operands of two dtypes."""
    if min(self.ndim, other.ndim) < 2 or self.dtype != other.dtype:
        return None
    return matmul(self, other)


@backward("mm", "bmm", "matmul", keeps=True)
def gradients_of_product(call: NodeCall) -> tuple[Array | None, ...] | None:
    """A product for each; None for vectors, and for batches that were broadcast."""
    first, second = call.op.inputs
    shape, other = call.shape(first), call.shape(second)
    folds = len(other) == 2  # one matrix for all
    if min(len(shape), len(other)) < 2 or not (folds or shape[:-2] == other[:-2]):
        return None
    g, gradients = call.g, {}
    with one_copy_of(g):
        if call.wants(first):
            gradients[first] = matmul(g, call[second].swapaxes(-1, -2))
        if call.wants(second):
            x = call[first]
            if folds and len(shape) > 2:
                x, g = x.reshape(-1, shape[-1]), g.reshape(-1, g.shape[-1])
            gradients[second] = matmul(x.swapaxes(-1, -2), g)
    return call.answer(**gradients)


@backward("linear", keeps=True)
def gradients_of_linear(call: NodeCall) -> tuple[Array | None, ...] | None:
    """Two products, and the sum for the bias, which cuBLASLt adds up in the second of them."""
    g, x, weight = call.g, call["input"], call["weight"]
    operands = [a for a in (x, weight) if a is not None]
    if g.ndim < 2 or not g.size or name_of(g.dtype) not in FLOATS:
        return None
    if any(a.dtype != g.dtype or not a.size for a in operands):
        return None
    rows = g if g.ndim == 2 else g.reshape(-1, g.shape[-1])
    slopes = offsets = of_input = None
    with one_copy_of(g):
        if call.wants("weight"):
            columns = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
            if call.wants("bias") and wanted.cublaslt:
                slopes, offsets = _with_bias(rows, columns)
            if slopes is None:
                slopes = matmul(rows.T, columns)
        if call.wants("input"):
            of_input = matmul(g, weight)
    if call.wants("bias") and offsets is None:
        offsets = sum_of(rows, 0, False)
        if offsets is None:
            return None
    return call.answer(input=of_input, weight=slopes, bias=offsets)


def _with_bias(rows: Array, columns: Array) -> tuple[Array | None, Array | None]:
    """`rows.T @ columns` and the sums of the rows; None where cuBLASLt does not have both."""
    key = rows.dtype.num, rows.shape, rows.strides, columns.shape, columns.strides, wanted.tf32
    try:
        product = _sums[key]
    except KeyError:
        gemm = gemm_of(rows.dtype, rows.shape[::-1], rows.strides[::-1], columns.shape,
                       columns.strides)  # fmt: skip
        whole = None
        if gemm is not None and not prefers_copies(gemm[0], rows.dtype, rows.nbytes):
            whole = EpilogueProduct(*gemm, rows.dtype, BIAS_GRADIENT)
        product = _kept(_sums, key, whole)
    if product is None:
        return None, None
    sums = cupy.ndarray(rows.shape[1:], rows.dtype)
    slopes = product.run(rows.T, columns, sums)
    return slopes, None if slopes is None else sums
