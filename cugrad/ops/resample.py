"""Rows that read the nearest element for each place of another grid, and add up what was read.

`sizes` are those of the result, or of the input, along the last dims; `steps` how many elements of
the input lie between two places, as float32 has them; `half` is what is added to a place before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..dtypes import is_half
from .table import AS_INPUT, LINEAR, row

Array = Any
Sizes = tuple[int, ...]


def _reads(xp: Any, size: int, out: int, step: float, half: float) -> Array:
    """Which element each of `out` places reads: in single precision, as PyTorch finds it."""
    places = (xp.arange(out) + half).astype("float32")
    return xp.minimum(xp.floor(places * step), size - 1).astype("int64")


@lru_cache(maxsize=256)
def _repeats(size: int, out: int, step: float, half: float) -> int:
    """How many times each element is read, one after another; 0 where they differ in that."""
    times = out // size
    if out != size * times:
        return 0
    same = _reads(np, size, out, step, half) == np.arange(out) // times
    return times if same.all() else 0


def _nearest(xp: Any, self: Array, sizes: Sizes, steps: tuple[float, ...], half: float) -> Array:
    x, first = self, self.ndim - len(sizes)
    for axis, (out, step) in enumerate(zip(sizes, steps), first):
        size = x.shape[axis]
        times = _repeats(size, out, step, half)
        if times == 0:
            x = xp.take(x, _reads(xp, size, out, step, half), axis)
        elif times > 1:
            lead, tail = x.shape[: axis + 1], x.shape[axis + 1 :]
            spread = xp.broadcast_to(x.reshape((*lead, 1, *tail)), (*lead, times, *tail))
            x = spread.reshape((*lead[:-1], out, *tail))
    return self.copy() if x is self else x


def _nearest_backward(
    xp: Any, grad_output: Array, sizes: Sizes, steps: tuple[float, ...], half: float
) -> Array:
    dtype, first = grad_output.dtype, grad_output.ndim - len(sizes)
    g = grad_output.astype(xp.float32) if is_half(dtype) else grad_output
    for axis, (size, step) in enumerate(zip(sizes, steps), first):
        out, lead, tail = g.shape[axis], g.shape[:axis], g.shape[axis + 1 :]
        times = _repeats(size, out, step, half)
        if times == 0:
            total = xp.zeros((*lead, size, *tail), g.dtype)
            reads = _reads(xp, size, out, step, half)
            xp.index_add(total, (*(slice(None),) * axis, reads), g)
            g = total
        elif times > 1:
            g = xp.sum(g.reshape((*lead, size, times, *tail)), axis + 1)
    return g.astype(dtype) if g is not grad_output else grad_output.copy()


def _node(params: dict[str, Any]) -> str:
    exact = "Exact" if params["half"] else ""
    return f"UpsampleNearest{exact}{len(params['sizes'])}DBackward0"


row(
    "upsample_nearest", "self", _nearest, LINEAR, dense=AS_INPUT, node=_node,
    self=lambda m, g, self_shape, sizes, steps, half: (
        m.upsample_nearest_backward(g, self_shape[-len(sizes):], steps, half)),
    kernels=(1, 0),
    doc="the element at or before each place of a grid of `sizes`",
)  # fmt: skip

row(
    "upsample_nearest_backward", "grad_output", _nearest_backward, LINEAR, dense=AS_INPUT,
    grad_output=lambda m, g, grad_output_shape, sizes, steps, half: (
        m.upsample_nearest(g, grad_output_shape[-len(sizes):], steps, half)),
    kernels=(1, 0),
    doc="the adjoint of upsample_nearest, on grids of `sizes`",
)  # fmt: skip
