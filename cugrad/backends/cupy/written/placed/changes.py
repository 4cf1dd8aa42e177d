"""Rows that put or add where indices say, over their first input: nothing of it is copied."""

from __future__ import annotations

from typing import Any

from ....wanted import wanted
from ..launch import FLOATS, name_of
from ..plans import kept
from ..registry import change
from .sums import STORED_AS, added_over, beginning_of, lines_of, put_over, with_rows

__all__: list[str] = []

Array = Any  # cupy.ndarray


def _put(self: Array, index: Array, src: Array, dim: int) -> Array | None:
    lines = lines_of(self, index, dim)
    if lines is None or self.dtype.itemsize not in STORED_AS:
        return None
    put_over(self, index, beginning_of(src, index), lines)
    return self


def _added(self: Array, index: Array, src: Array, dim: int) -> Array | None:
    lines = lines_of(self, index, dim)
    if lines is None:
        return None
    return added_over(self, beginning_of(src, index), index, self, dim, lines)


def _rows_added(self: Array, index: Array, source: Array, dim: int, alpha: float) -> Array | None:
    return with_rows(self, source, index, self.shape, dim, alpha, over=True)


_launches = kept(_put, ("self", "index", "src"), ("dim",))
_sums = kept(_added, ("self", "index", "src"), ("dim",))
_row_sums = kept(_rows_added, ("self", "index", "source"), ("dim", "alpha"))


@change("scatter")
def scatter(self: Array, index: Array, src: Array, dim: int) -> Array | None:
    """In one kernel; of two values for a place one stays, unless it has to be the last."""
    if src.dtype != self.dtype or wanted.deterministic:
        return None
    result: Array | None = _launches(self, index, src, dim)
    return result


@change("scatter_add")
def scatter_add(self: Array, index: Array, src: Array, dim: int) -> Array | None:
    """In one kernel: sums in order where indices are few, by atomics where they are many."""
    if name_of(self.dtype) not in FLOATS or src.dtype != self.dtype:
        return None
    result: Array | None = _sums(self, index, src, dim)
    return result


@change("index_add")
def index_add(self: Array, index: Array, source: Array, dim: int, alpha: Any) -> Array | None:
    """In one kernel where indices are few, in a few that list rows first where they are many."""
    if type(alpha) not in (int, float) or source.dtype != self.dtype or index.ndim > 1:
        return None
    if not 0 <= dim < self.ndim or source.ndim != self.ndim:
        return None
    result: Array | None = _row_sums(self, index, source, dim, float(alpha))
    return result
