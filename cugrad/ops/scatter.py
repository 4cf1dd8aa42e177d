"""Rows that reduce values into places named by an index: scatter_reduce.

Index arrays are integers; `dim` is counted from the front, and the tensor has at least one.
"""

from __future__ import annotations

from typing import Any

from .index import _corner, _grid
from .table import NONE, row

UFUNCS = {"prod": "multiply", "amax": "maximum", "amin": "minimum"}
NEUTRAL = {"prod": 1, "amax": "-inf", "amin": "inf"}
SEVERAL_ZEROS = (
    "scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered "
    "to the same position in self"
)


def _neutral(dtype: Any, reduce: str) -> Any:
    """What a reduction starts from."""
    import numpy as np

    if reduce == "prod":
        return 1
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if reduce == "amax" else limits.max
    return float(NEUTRAL[reduce])  # type: ignore[arg-type]


def _scatter_reduce(
    xp: Any, self: Any, index: Any, src: Any, dim: int, reduce: str, include_self: bool = True
) -> Any:
    out = self.copy()
    places = _grid(xp, index, dim)
    if not include_self:
        out[places] = _neutral(self.dtype, reduce)
    xp.index_reduce(out, places, src[_corner(index.shape)], UFUNCS[reduce])
    return out


def _zeros_in(m: Any, zero: Any, index: Any, like: Any, dim: int) -> Any:
    """How many of the values that went to the same place are zero."""
    return m.gather(m.scatter_add(m.zero_like(like), index, zero, dim), index, dim)


def _ones_where(m: Any, condition: Any, like: Any) -> Any:
    return m.masked_fill(m.zero_like(like), condition, 1)


def _like_index(m: Any, src: Any, index: Any) -> Any:
    shape = tuple(index.shape)
    return src if tuple(src.shape) == shape else m.slice_view(src, _corner(shape))


def _prod_self(m: Any, self: Any, index: Any, src: Any, dim: int, include_self: bool) -> Any:
    """The product of the others, for the one that self is."""
    if not include_self:
        return m.scatter_zero(m.new_ones(self, tuple(self.shape)), index, dim)
    ones = m.new_ones(self, tuple(self.shape))
    return m.scatter_reduce(ones, index, src, dim, "prod", True)


def _prod_src(
    m: Any, self: Any, index: Any, src: Any, result: Any, dim: int, include_self: bool
) -> Any:
    """The product of the others, for each of src: with the one zero left out where it is alone."""
    zero = m.eq(src, 0)
    count = _zeros_in(m, _ones_where(m, zero, src), index, self, dim)
    alone = m.logical_and(zero, m.eq(count, 1))
    rest = m.scatter_reduce(self, index, m.masked_fill(src, alone, 1), dim, "prod", include_self)
    return m.where(
        alone, m.gather(rest, index, dim),
        m.gather(result, index, dim) / m.masked_fill(src, zero, 1),
    )  # fmt: skip


def _share(
    m: Any, self: Any, index: Any, src: Any, result: Any, dim: int, include_self: bool
) -> tuple[Any, Any]:
    """For self and src: 1 over the number of extrema at a place, 0 for what is none of them."""
    top = _ones_where(m, m.eq(self, result), self)
    hits = _ones_where(m, m.eq(src, m.gather(result, index, dim)), src)
    if not include_self:
        top = m.scatter_zero(top, index, dim)
    count = m.scatter_add(top, index, hits, dim)
    count = m.masked_fill(count, m.eq(count, 0), 1)
    return top / count, hits / m.gather(count, index, dim)


def _self_grad(
    m: Any, g: Any, self: Any, index: Any, src: Any, result: Any, dim: int, reduce: str,
    include_self: bool,
) -> Any:  # fmt: skip
    src = _like_index(m, src, index)
    if reduce == "prod":
        return g * _prod_self(m, self, index, src, dim, include_self)
    return g * _share(m, self, index, src, result, dim, include_self)[0]


def _src_grad(
    m: Any, g: Any, self: Any, index: Any, src: Any, result: Any, dim: int, reduce: str,
    include_self: bool, src_shape: Any,
) -> Any:  # fmt: skip
    src = _like_index(m, src, index)
    if reduce == "prod":
        part = _prod_src(m, self, index, src, result, dim, include_self)
        zero = m.eq(src, 0)
        count = _zeros_in(m, _ones_where(m, zero, src), index, self, dim)
        part = m.differentiable_unless(part, m.logical_and(zero, m.ne(count, 1)), SEVERAL_ZEROS)
    else:
        part = _share(m, self, index, src, result, dim, include_self)[1]
    grad = m.gather(g, index, dim) * part
    shape = tuple(index.shape)
    return grad if shape == tuple(src_shape) else m.slice_backward(grad, src_shape, _corner(shape))


def _jvp(
    m: Any, self: Any, index: Any, src: Any, self_t: Any, src_t: Any, result: Any, dim: int,
    reduce: str, include_self: bool,
) -> Any:  # fmt: skip
    whole, out = src, None
    src = _like_index(m, src, index)
    if reduce == "prod":
        mine = _prod_self(m, self, index, src, dim, include_self)
        theirs = _prod_src(m, self, index, src, result, dim, include_self)
    else:
        mine, theirs = _share(m, self, index, src, result, dim, include_self)
    if self_t is not None:
        out = self_t * mine
    if src_t is not None:
        src_t = src_t if src is whole else m.slice_view(src_t, _corner(tuple(index.shape)))
        out = m.scatter_add(m.zero_like(result) if out is None else out, index, src_t * theirs, dim)
    return out


row(
    "scatter_reduce", "self index src", _scatter_reduce, NONE,
    self=_self_grad, src=_src_grad, jvp=_jvp, kernels=(2, 3),
    doc="reduce is prod, amax or amin; sum and mean are scatter_add",
)  # fmt: skip

row("new_ones", "self", lambda xp, self, shape: xp.ones(shape, self.dtype))
