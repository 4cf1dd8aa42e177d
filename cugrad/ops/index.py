"""Rows that pick and place elements by index arrays and masks.

Index arrays are integers; `dim` is counted from the front, and the tensor has at least one.
"""

from __future__ import annotations

from typing import Any

from ..backends.wanted import wanted
from .dims import keeps_order
from .precision import of_dtype_of
from .promotion import as_of
from .table import ELEMENTWISE, LINEAR, NONE, row

Shape = tuple[int, ...]
Index = tuple[Any, ...]


# Advanced indexing --------------------------------------------------------------------------------


def _index_backward(xp: Any, grad: Any, shape: Shape, indices: Index) -> Any:
    out = xp.zeros(shape, grad.dtype)
    if names_once(indices):
        out[indices] = grad
    else:
        xp.index_add(out, indices, grad)
    return out


def names_once(indices: Index) -> bool:
    """Whether no element can be named twice: slices and masks only."""
    return all(i is None or isinstance(i, slice) or is_mask(i) for i in indices)


def assign(xp: Any, array: Any, index: Index, values: Any) -> None:
    """`array[index] = values`, in place. Of several values for one place the last stays; on CUDA,
    where threads write in any order, only if results are to be deterministic.
    """
    if wanted.deterministic and not names_once(index):
        xp.index_reduce(array, index, values, "last")
    else:
        xp.put_at(array, index, values)


def is_mask(index: Any) -> bool:
    return hasattr(index, "dtype") and index.dtype.kind == "b"


row(
    "index", "self",
    lambda xp, self, indices: self[indices],
    LINEAR, held=True, dense=True,
    self=lambda m, g, self_shape, indices: m.index_backward(g, self_shape, indices),
    doc="indices: what NumPy takes, with arrays of the same backend",
)  # fmt: skip

row(
    "index_backward", "grad", _index_backward, LINEAR,
    grad=lambda m, g, indices: m.index(g, indices),
    doc="the adjoint of index: zeros of a shape, to which `grad` is added at `indices`",
)  # fmt: skip


def _index_put(xp: Any, self: Any, values: Any, indices: Index, accumulate: bool = False) -> Any:
    out = self.copy("K" if keeps_order(self) else "C")
    _put_in(xp, out, values, indices, accumulate)
    return out


def _put_in(xp: Any, self: Any, values: Any, indices: Index, accumulate: bool = False) -> None:
    if not accumulate:
        assign(xp, self, indices, values)
    elif names_once(indices):
        self[indices] += values
    else:
        xp.index_add(self, indices, values)


def _summed(m: Any, part: Any, shape: Shape) -> Any:
    """The gradient of values of a shape, which were broadcast to the part, or are as it is."""
    return part if tuple(part.shape) == tuple(shape) else m.sum_to_shape(part, shape)


def _index_put_jvp(
    m: Any, self: Any, values: Any, self_t: Any, values_t: Any, indices: Index, accumulate: bool
) -> Any:
    self_t = m.zero_like(self) if self_t is None else self_t
    values_t = m.zero_like(values) if values_t is None else values_t
    return m.index_put(self_t, values_t, indices, accumulate)


row(
    "index_put", "self values", _index_put, NONE,
    self=lambda m, g, indices, accumulate: g if accumulate else m.index_zero(g, indices),
    values=lambda m, g, values_shape, indices: _summed(m, m.index(g, indices), values_shape),
    jvp=_index_put_jvp, inplace=_put_in, held=True,
    doc="a copy of self with values at indices",
)  # fmt: skip


def _index_zero(xp: Any, self: Any, indices: Index) -> Any:
    out = self.copy()
    xp.put_at(out, indices, 0)
    return out


row(
    "index_zero", "self", _index_zero, LINEAR,
    self=lambda m, g, indices: m.index_zero(g, indices),
    doc="a copy of self with zeros at indices",
)  # fmt: skip

row("zero_like", "self", lambda xp, self: xp.zeros_like(self))


def _named_by(xp: Any, index: Any, size: int) -> Any:
    mask = xp.zeros(size, bool)
    mask[index] = True
    return mask


row("named_by", "index", _named_by, kernels=(2, 0),
    doc="a mask of `size` places: those that an index names, once or more")  # fmt: skip


# Along one dim ------------------------------------------------------------------------------------


def _grid(xp: Any, index: Any, dim: int) -> Index:
    """What makes `array[...]` the elements that gather and scatter mean by `index`."""
    axes: list[Any] = []
    for d, n in enumerate(index.shape):
        ends = (1,) * d + (n,) + (1,) * (index.ndim - d - 1)
        axes.append(index if d == dim else xp.arange(n).reshape(ends))
    return tuple(axes)


def _corner(shape: Shape, dim: int | None = None) -> Index:
    """The part of a larger array that an index of `shape` reaches."""
    return tuple([slice(None) if d == dim else slice(0, n, 1) for d, n in enumerate(shape)])


row(
    "gather", "self index",
    lambda xp, self, index, dim: xp.take_along_axis(self[_corner(index.shape, dim)], index, dim),
    LINEAR,
    self=lambda m, g, index, self_shape, dim: m.gather_backward(g, index, self_shape, dim),
    dense=True, doc="index may be smaller than self in the other dims",
)  # fmt: skip


def _gather_backward(xp: Any, grad: Any, index: Any, shape: Shape, dim: int) -> Any:
    out = xp.zeros(shape, grad.dtype)
    xp.index_add(out, _grid(xp, index, dim), grad)
    return out


row(
    "gather_backward", "grad index", _gather_backward, LINEAR,
    grad=lambda m, g, index, dim: m.gather(g, index, dim),
    kernels=(1, 0),
    doc="the adjoint of gather: zeros of a shape, to which `grad` is added where gather looked",
)  # fmt: skip


def _scatter(xp: Any, self: Any, index: Any, src: Any, dim: int) -> Any:
    out = self.copy()
    assign(xp, out, _grid(xp, index, dim), src[_corner(index.shape)])
    return out


def _scatter_add(xp: Any, self: Any, index: Any, src: Any, dim: int) -> Any:
    out = self.copy()
    xp.index_add(out, _grid(xp, index, dim), src[_corner(index.shape)])
    return out


def _scatter_src(m: Any, g: Any, index: Any, src_shape: Shape, dim: int) -> Any:
    grad = m.gather(g, index, dim)
    if index.shape == src_shape:
        return grad
    return m.slice_backward(grad, src_shape, _corner(index.shape))


def _scatter_jvp(name: str) -> Any:
    def jvp(m: Any, self: Any, index: Any, src: Any, self_t: Any, src_t: Any, dim: int) -> Any:
        self_t = m.zero_like(self) if self_t is None else self_t
        src_t = m.zero_like(src) if src_t is None else src_t
        return getattr(m, name)(self_t, index, src_t, dim)

    return jvp


def _scatter_zero(xp: Any, self: Any, index: Any, dim: int) -> Any:
    out = self.copy()
    out[_grid(xp, index, dim)] = 0
    return out


row(
    "scatter_zero", "self index", _scatter_zero, LINEAR,
    self=lambda m, g, index, dim: m.scatter_zero(g, index, dim),
    kernels=(2, 0),
    doc="a copy of self with zeros where scatter would write",
)  # fmt: skip

row(
    "scatter", "self index src", _scatter, NONE,
    self=lambda m, g, index, dim: m.scatter_zero(g, index, dim),
    src=_scatter_src,
    jvp=_scatter_jvp("scatter"), kernels=(2, 0),
)  # fmt: skip

row(
    "scatter_add", "self index src", _scatter_add, NONE,
    self=lambda g: g,
    src=_scatter_src,
    jvp=_scatter_jvp("scatter_add"), kernels=(1, 0),
)  # fmt: skip


def _across(dim: int, index: Any) -> Index:
    return (*(slice(None),) * dim, index)


row(
    "index_select", "self index",
    lambda xp, self, index, dim: xp.take(self, index, dim),
    LINEAR,
    self=lambda m, g, index, self_shape, dim: m.index_select_backward(g, index, self_shape, dim),
)  # fmt: skip


def _index_select_backward(xp: Any, grad: Any, index: Any, shape: Shape, dim: int) -> Any:
    out = xp.zeros(shape, grad.dtype)
    xp.index_add(out, _across(dim, index), grad)
    return out


row(
    "index_select_backward", "grad index", _index_select_backward, LINEAR,
    grad=lambda m, g, index, dim: m.index_select(g, index, dim),
    doc="the adjoint of index_select: zeros of a shape, to which slices of `grad` are added",
)  # fmt: skip


def _index_add(xp: Any, self: Any, index: Any, source: Any, dim: int, alpha: Any = 1) -> Any:
    out = self.copy()
    alpha = bool(alpha) if source.dtype.kind == "b" else as_of(source, alpha)
    scaled = source if alpha == 1 else source * alpha
    xp.index_add(out, _across(dim, index), scaled)
    return out


def _index_add_jvp(
    m: Any, self: Any, index: Any, source: Any, self_t: Any, source_t: Any, dim: int, alpha: Any
) -> Any:
    self_t = m.zero_like(self) if self_t is None else self_t
    source_t = m.zero_like(source) if source_t is None else source_t
    return m.index_add(self_t, index, source_t, dim, alpha)


row(
    "index_add", "self index source", _index_add, NONE,
    self=lambda g: g,
    source=lambda m, g, index, dim, alpha: of_dtype_of(m, g, m.index_select(g, index, dim) * alpha),
    jvp=_index_add_jvp, fits="alpha",
)  # fmt: skip

row(
    "nonzero", "self",
    lambda xp, self: xp.argwhere(self).astype("int64"),
    doc="the indices of the nonzero elements, one a line",
)  # fmt: skip


# Masks --------------------------------------------------------------------------------------------

row(
    "masked_fill", "self mask",
    lambda xp, self, mask, value: xp.where(mask, value, self).astype(self.dtype, copy=False),
    ELEMENTWISE, dense=True, widens=False, passes=1,
    self=lambda m, g, mask: m.masked_fill(g, mask, 0), public=False,
)  # fmt: skip
