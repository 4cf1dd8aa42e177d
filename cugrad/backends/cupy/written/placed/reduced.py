"""scatter_reduce, and its gradients: products and extrema of what indices send to one place."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from ....wanted import wanted
from ...fused.copies import copy_into
from ...kernels.placed.reduced import KERNELS
from ..launch import BLOCK, FLOATS, Written, accumulator, blocks, dense, int32, int64, name_of
from ..launch import kernel as kernel_of
from ..registry import NodeCall, backward, forward
from .sums import NamedLines, begin, beginning_of, lines_of

__all__: list[str] = []

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray

HOW = {"prod": 0, "amax": 1, "amin": 2}
SMALL = ("int8", "int16", "uint8", "bool")
KEPT_AS = {"float16": "float32", "bfloat16": "float32", **dict.fromkeys(SMALL, "int32")}
REDUCED = (*FLOATS, "int64", "int32", *SMALL)
# By their bits, those that leave others as they are.
NEUTRAL = {
    "float32": (0x3F800000, -0x800000, 0x7F800000),
    "float64": (0x3FF << 52, -(1 << 52), 0x7FF << 52),
    "int32": (1, -(1 << 31), (1 << 31) - 1),
    "int64": (1, -(1 << 63), (1 << 63) - 1),
}


def _kernel(name: str, dtype: str, index: str | None, **numbers: int) -> Written:
    return kernel_of(KERNELS[name], name, dtype, index, 1, **numbers)


@forward("scatter_reduce", keeps=True)
def scatter_reduce(
    self: Array, index: Array, src: Array, dim: int, reduce: str, include_self: bool
) -> Array | None:
    """A kernel that begins, perhaps with what is neutral by one more, and one of atomics; of half
    precision and small integers another one, which rounds. Extrema are the same in any order.
    """
    dtype, src = name_of(self.dtype), beginning_of(src, index)
    if dtype not in REDUCED or src.dtype != self.dtype or src.shape != index.shape:
        return None
    if wanted.deterministic and reduce == "prod" and dtype in FLOATS:
        return None
    lines = lines_of(self, index, dim)
    if lines is None:
        return None
    kept, named = KEPT_AS.get(dtype, dtype), name_of(index.dtype)
    numbers = {"HOW": HOW[reduce], "NARROW": int(dtype in SMALL)}
    y, size, places = ndarray(self.shape, np.dtype(kept)), int64(self.size), int64(index.size)
    run = _kernel("begin_reduction", dtype, named, **numbers)
    run((blocks(self.size),), (BLOCK,), (dense(self), y, size))
    if not include_self:
        neutral = int64(NEUTRAL[kept][HOW[reduce]])
        run = _kernel("begin_neutral", dtype, named, **numbers)
        run((blocks(index.size),), (BLOCK,), (lines.indices, y, neutral, places, *lines.told))
    run = _kernel("reduce_by_index", dtype, named, **numbers)
    run((blocks(index.size),), (BLOCK,), (dense(src), lines.indices, y, places, *lines.told))
    if kept == dtype:
        return y
    result = ndarray(self.shape, self.dtype)
    _kernel("end_reduction", dtype, named, **numbers)(
        (blocks(self.size),), (BLOCK,), (y, result, size))  # fmt: skip
    return result


@backward("scatter_reduce", keeps=True)
def scatter_reduce_backward(call: NodeCall) -> tuple[Array | None, ...] | None:
    """In three kernels: what others find at a place has to be known before it is shared. In more
    where src is larger than the index: its rest has zeros.
    """
    x, index, src, result = (call[name] for name in ("self", "index", "src", "result"))
    reduce, alone = call.params["reduce"], not call.params["include_self"]
    asked = [call.wants(name) for name in ("self", "src")]
    dtype, shape, src = name_of(call.g.dtype), call.shape("self"), beginning_of(src, index)
    if dtype not in FLOATS or src.shape != index.shape or src.dtype != call.g.dtype:
        return None
    if wanted.deterministic and reduce == "prod":
        return None
    lines = lines_of(call.g, index, call.params["dim"])
    if lines is None:
        return None
    g, x, src, result = (dense(y) for y in (call.g, x, src, result))
    grads = [ndarray(s, g.dtype) if wants else None
             for s, wants in zip((shape, index.shape), asked)]  # fmt: skip
    sizes = [0 if grad is None else grad.size for grad in grads]
    named, last = name_of(index.dtype), (*map(int64, sizes), *lines.told)
    tallies = _tallies(src, result, lines, shape, reduce, alone)
    name = "share_products" if reduce == "prod" else "share_extrema"
    _kernel(name, dtype, named)(
        (blocks(sum(sizes)),), (BLOCK,),
        (g, x, src, result, lines.indices, *tallies, *grads, *last))  # fmt: skip
    whole, part = call.shape("src"), grads[1]
    if part is not None and index.shape != whole:
        grads[1] = begin(ndarray(whole, g.dtype))
        if copy_into(beginning_of(grads[1], index), part) is None:
            return None
    return call.answer(self=grads[0], src=grads[1])


def _tallies(
    src: Array, result: Array, lines: NamedLines, shape: tuple[int, ...], reduce: str, alone: bool
) -> list[Array]:
    """What is known of each place: how many extrema are there; or the product, and the zeros."""
    dtype, named, size = name_of(src.dtype), name_of(lines.indices.dtype), prod(shape)
    last = int32(alone), int64(src.size), *lines.told
    counts = ndarray(shape, np.int32)
    if reduce != "prod":
        begin(counts)
        run = _kernel("count_extrema", dtype, named)
        run((blocks(src.size),), (BLOCK,), (src, result, lines.indices, counts, *last))
        return [counts]
    products = ndarray(shape, accumulator(src.dtype))
    _kernel("begin_products", dtype, named)(
        (blocks(size),), (BLOCK,), (products, counts, int64(size)))  # fmt: skip
    run = _kernel("multiply_others", dtype, named, HOW=0, NARROW=0)
    run((blocks(src.size),), (BLOCK,), (src, lines.indices, products, counts, *last))
    return [products, counts]
