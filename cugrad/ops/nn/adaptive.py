"""Rows of maxima over windows that cover a plane, as many as are asked for."""

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
