"""Sums of many elements, without an array of what is summed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..sums import MANY
from .registry import are_plain, forward

Array = np.ndarray[Any, Any]
SHORT, LONG = 64, 1 << 16  # rows for which BLAS is not called; whose sum it makes at once


@forward("linalg_vector_norm")
def _vector_norm(x: Array, ord: float = 2, dim: Any = None, keepdim: bool = False) -> Array | None:
    """The square root of the sum of squares over the last dims, or over all."""
    first = 0 if dim is None else x.ndim - len(dim)
    at_the_end = dim is None or {axis % x.ndim for axis in dim} == {*range(first, x.ndim)}
    size = prod(x.shape[first:])
    if ord != 2 or not at_the_end or size < SHORT or not are_plain(x):
        return None
    norms = np.sqrt(_squares(x.reshape(-1, size)))
    return norms.reshape(x.shape[:first] + (1,) * (x.ndim - first) * keepdim)


def _squares(rows: Array) -> Array:
    """The sums of the squares of rows: of so many elements by BLAS, whose sums are added in pairs.

    >>> _squares(np.array([[1, 2], [3, 4]], np.float32)).tolist()
    [5.0, 25.0]
    """
    size = rows.shape[1]
    if size <= LONG:
        sums: Array = np.matmul(rows[:, None], rows[..., None])[:, 0, 0]
        return sums
    rest = size % MANY
    most = rows[:, : size - rest].reshape(-1, MANY)
    parts = _squares(np.ascontiguousarray(most)).reshape(len(rows), -1)
    last = _squares(rows[:, size - rest :]) if rest else 0
    return np.add.reduce(parts, 1) + last
