"""Rows of maxima over windows that cover a plane, as many as are asked for; or are of one size, at
places that are drawn.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..table import CAST, row
from .pool import smallest_index

Array = Any
Shape = tuple[int, ...]


def _places(xp: Any, extents: Shape, sizes: Shape) -> Any:
    """Where the elements of each window lie, (windows, elements); a window shorter than others
    repeats its last.
    """
    n = len(extents)
    total: Any = 0
    cells = 1
    for i, (size, count) in enumerate(zip(extents, sizes)):
        width = max(-(-(k + 1) * size // count) - k * size // count for k in range(count))
        numbered = xp.arange(count).reshape(-1, 1)
        start, last = numbered * size // count, (numbered * size + size - 1) // count
        cells *= width
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = count, width
        reads = xp.minimum(start + xp.arange(width), last)
        total = total + reads.reshape(shape) * prod(extents[i + 1 :])
    return total.reshape(prod(sizes), cells)


def _adaptive_max_pool(xp: Any, self: Array, sizes: Shape) -> tuple[Array, Array]:
    n = len(sizes)
    lead, extents = self.shape[:-n], self.shape[-n:]
    places = _places(xp, extents, tuple(sizes))
    at = places.reshape(-1)
    values = xp.take(xp.reshape(self, (*lead, prod(extents))), at, len(lead))
    values = xp.reshape(values, (*lead, *places.shape))
    best = xp.argmax(values, -1, keepdims=True)
    result = xp.take_along_axis(values, best, -1)
    here = best + xp.arange(places.shape[0]).reshape(-1, 1) * places.shape[1]
    indices = xp.take(at, xp.reshape(here, (*lead, *sizes)), 0)
    kept = indices.astype(smallest_index(prod(extents)))
    return xp.reshape(result, (*lead, *sizes)), kept


for _n in (1, 2, 3):
    row(
        f"adaptive_max_pool{_n}d_with_indices", "self", _adaptive_max_pool, promote=CAST,
        outputs="result indices", nondifferentiable="indices",
        node=f"AdaptiveMaxPool{_n}DBackward0",
        self=lambda m, g, indices, self_shape, sizes: m.max_pool_backward(
            g, indices, self_shape[len(self_shape) - len(sizes) :]),
        jvp=lambda m, self_t, indices, sizes: (
            m.max_pool_gather(self_t, indices, len(sizes)), None),
        kernels=(1, 1),
        doc="the maximum of each window of as many as sizes say, and where it lies in its plane",
        refuses="c",
    )  # fmt: skip


# At places that are drawn -------------------------------------------------------------------------


def _drawn_places(xp: Any, samples: Array, extents: Shape, kernel: Shape, sizes: Shape) -> Any:
    """Where the elements of each window lie, (*lead, *sizes, elements), by samples (*lead, n).

    In float32, as PyTorch finds them: windows are `step` apart, and the last ends with the plane.
    """
    n, lead = len(sizes), samples.shape[:-1]
    total: Any = 0
    for i, (size, k, out) in enumerate(zip(extents, kernel, sizes)):
        # PyTorch reads the samples of a plane from the last axis in two dims, the first in three
        drawn = samples[..., n - 1 - i if n == 2 else i].reshape((*lead, *(1,) * (2 * n)))
        shape, window = [1] * (2 * n), [1] * (2 * n)
        shape[i], window[n + i] = out, k
        number = xp.arange(out).reshape(shape)
        step = (size - k) / (out - 1) if out > 1 else 0.0
        begin = ((number.astype("float32") + drawn) * step).astype("int64")
        begin = begin - (drawn * step).astype("int64")
        begin = xp.where(number == out - 1, size - k, begin)
        total = total + (begin + xp.arange(k).reshape(window)) * prod(extents[i + 1 :])
    return total.reshape((*lead, *sizes, prod(kernel)))


def _fractional_max_pool(
    xp: Any, self: Array, samples: Array, kernel_size: Shape, sizes: Shape
) -> tuple[Array, Array]:
    n = len(sizes)
    lead, extents = self.shape[:-n], self.shape[-n:]
    places = _drawn_places(xp, samples, extents, tuple(kernel_size), tuple(sizes))
    flat = xp.reshape(self, (*lead, prod(extents)))
    values = xp.take_along_axis(flat, xp.reshape(places, (*lead, -1)), -1).reshape(places.shape)
    best = xp.argmax(values, -1, keepdims=True)
    result, indices = (xp.take_along_axis(x, best, -1) for x in (values, places))
    kept = indices.astype(smallest_index(prod(extents)))
    return xp.reshape(result, (*lead, *sizes)), xp.reshape(kept, (*lead, *sizes))


for _n in (2, 3):
    row(
        f"fractional_max_pool{_n}d_with_indices", "self samples", _fractional_max_pool,
        promote=CAST, outputs="result indices", nondifferentiable="indices",
        node=f"FractionalMaxPool{_n}DBackward0",
        self=lambda m, g, indices, self_shape, kernel_size, sizes: m.max_pool_backward(
            g, indices, self_shape[len(self_shape) - len(sizes) :]),
        jvp=lambda m, self_t, indices, kernel_size, sizes: (
            m.max_pool_gather(self_t, indices, len(sizes)), None),
        kernels=(1, 1),
        doc="the maximum of each window of kernel_size, whose places are drawn, and where it lies",
        refuses="c",
    )  # fmt: skip
