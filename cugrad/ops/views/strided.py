"""Rows that see memory by strides: as_strided, unfold, and views in another dtype.

Strides and offsets are counted in elements; an offset is relative to the tensor's first element.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...backends.batched.arrays import any_batched
from ...backends.copies import order_of
from ...backends.owners import root_of
from ...dtypes import is_half
from ..precision import sum_of
from ..table import LINEAR, NONE, row

Shape = tuple[int, ...]


# Any strides --------------------------------------------------------------------------------------


def layout_of(array: Any) -> Shape:
    """The strides of an array in elements."""
    return tuple([s // array.itemsize for s in array.strides])


def storage_of(array: Any) -> tuple[Any, int]:
    """All memory that an array is a part of, in one dim and its dtype; and where it starts in it.

    What NumPy calls the base of a view, all the way down; on a GPU the block of the allocator.
    """
    if any_batched((array,)):  # an example, inside vmap, is a memory of its own
        dense = layout_of(array) == tuple([prod(array.shape[d + 1 :]) for d in range(array.ndim)])
        return (array.reshape(-1) if dense else array), 0
    root = root_of(array)
    if not root.flags.c_contiguous:  # dims in another order, as those of a clone of a transpose
        root = root.transpose(sorted(range(root.ndim), key=lambda d: -root.strides[d]))
    if not root.flags.c_contiguous:  # a part of memory not our own
        return array, 0
    flat = root.reshape(-1)
    if flat.dtype != array.dtype:
        if flat.nbytes % array.itemsize:
            return array, 0
        flat = flat.view(array.dtype)
    if not flat.size:  # no memory: where it lies says nothing
        return flat, 0
    return flat, (address_of(array) - address_of(flat)) // array.itemsize


def address_of(array: Any) -> int:
    """Where the first element lies in its memory."""
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0]
    return array.data.ptr


def _reach(size: Shape, stride: Shape) -> tuple[int, int]:
    """The lowest and the highest place that such strides lead to, from 0."""
    if 0 in size:
        return 0, -1
    low = sum((n - 1) * s for n, s in zip(size, stride) if s < 0)
    return low, sum((n - 1) * s for n, s in zip(size, stride) if s > 0)


def _places(xp: Any, size: Shape, stride: Shape, offset: int) -> Any:
    """The places of all elements, in the shape `size`."""
    places = xp.full((1,) * len(size), offset, "int64")
    for d, (n, s) in enumerate(zip(size, stride)):
        if n != 1:
            places = places + (xp.arange(n) * s).reshape((n,) + (1,) * (len(size) - d - 1))
    return xp.broadcast_to(places, size)


def overlaps(size: Shape, stride: Shape) -> bool:
    """Whether two elements may share a place: by sorted strides, which errs towards yes."""
    if 0 in size:
        return False
    reach = 0
    for s, n in sorted((abs(s), n) for n, s in zip(size, stride) if n != 1):
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


def _strided(xp: Any, array: Any, size: Shape, stride: Shape) -> Any:
    steps = tuple([s * array.itemsize for s in stride])
    return xp.lib.stride_tricks.as_strided(array, tuple(size), steps)


def _as_strided(xp: Any, self: Any, size: Shape, stride: Shape, offset: int, layout: Shape) -> Any:
    own = layout_of(self)
    if all(n == 1 or a == b for n, a, b in zip(self.shape, own, layout)):
        flat, start = storage_of(self)
        low, high = _reach(size, stride)
        if flat.ndim == 1 and low + start + offset >= 0 and high + start + offset < flat.size:
            return _strided(xp, flat[start + offset :], size, stride)
    # Elements that lie elsewhere by now: they are laid out as they were, then looked at
    return _across(xp, self, (self.shape, layout, 0), (tuple(size), stride, offset), True)


def _across(xp: Any, array: Any, source: Any, target: Any, mean: bool) -> Any:
    """`array` added to empty memory by the geometry `source`, and read by the geometry `target`.

    A geometry is a triple (size, stride, offset). Where elements of the tensor's own geometry share
    a place, which is the source if `mean` says so and else the target, each counts its part.
    """
    bounds = [(g[2] + low, g[2] + high) for g in (source, target) for low, high in [_reach(*g[:2])]]
    low, high = min(b[0] for b in bounds), max(b[1] for b in bounds)
    kind = array.dtype
    wide = "float32" if is_half(kind) else kind
    memory = xp.zeros(max(high - low + 1, 1), wide)
    first, second = ((size, stride, offset - low) for size, stride, offset in (source, target))
    own = first if mean else second
    if not prod(first[0]):
        pass
    elif overlaps(*first[:2]):
        places = _places(xp, *first).reshape(-1)
        xp.index_add(memory, places, array.astype(wide).reshape(-1))
    else:
        _strided(xp, memory[first[2] :], *first[:2])[...] = array
    if overlaps(*own[:2]):
        count = xp.zeros(memory.shape, "int32")
        xp.index_add(count, _places(xp, *own).reshape(-1), 1)
        memory = memory / xp.maximum(count, 1).astype(memory.real.dtype)
    if not prod(second[0]):
        return xp.zeros(second[0], kind)
    if min(second[1], default=0) < 0:
        return memory[_places(xp, *second)].astype(kind)
    return _strided(xp, memory[second[2] :], *second[:2]).astype(kind)


def _as_strided_backward(
    xp: Any, grad: Any, shape: Shape, size: Shape, stride: Shape, offset: int, layout: Shape
) -> Any:
    return _across(xp, grad, (tuple(size), stride, offset), (tuple(shape), layout, 0), False)


row(
    "as_strided", "self", _as_strided, LINEAR, view=True,
    self=lambda m, g, self_shape, size, stride, offset, layout: m.as_strided_backward(
        g, self_shape, size, stride, offset, layout
    ),
    doc="`layout` is the strides of self; for a tensor of other strides the row is a copy",
)  # fmt: skip

row(
    "as_strided_backward", "grad", _as_strided_backward, LINEAR,
    grad=lambda m, g, shape, size, stride, offset, layout: m.as_strided(
        g, size, stride, offset, layout
    ),
    doc="the adjoint of as_strided: elements of `grad` that shared a place add up",
)  # fmt: skip


# Windows ------------------------------------------------------------------------------------------


def _unfold(xp: Any, self: Any, dimension: int, size: int, step: int) -> Any:
    if not self.ndim:
        return self.reshape(1)[:size]
    n, stride = self.shape[dimension], self.strides[dimension]
    shape, strides = list(self.shape), list(self.strides)
    shape[dimension], strides[dimension] = (n - size) // step + 1, stride * step
    return xp.lib.stride_tricks.as_strided(self, (*shape, size), (*strides, stride))


row(
    "unfold", "self", _unfold, LINEAR, view=True,
    self=lambda m, g, self_shape, dimension, size, step: m.unfold_backward(
        g, self_shape, dimension, size, step
    ),
)  # fmt: skip


def _unfold_backward(xp: Any, grad: Any, shape: Shape, dimension: int, size: int, step: int) -> Any:
    half = is_half(grad.dtype)
    out = xp.zeros(shape, "float32" if half and step < size else grad.dtype)
    if step >= size or not out.ndim:  # no two windows share a place
        _unfold(xp, out, dimension, size, step)[...] = grad
        return out
    at = (slice(None),) * dimension
    count = grad.shape[dimension]
    if count <= size:
        for i in range(count):
            out[(*at, slice(i * step, i * step + size))] += xp.moveaxis(
                grad[(*at, i)], -1, dimension
            )
    else:
        last = (count - 1) * step + 1
        for i in range(size):
            out[(*at, slice(i, i + last, step))] += grad[..., i]
    return out.astype(grad.dtype, copy=False)


row(
    "unfold_backward", "grad", _unfold_backward, LINEAR, kernels=(1, 0),
    grad=lambda m, g, dimension, size, step: m.unfold(g, dimension, size, step),
    doc="the adjoint of unfold: windows are added where they were",
)  # fmt: skip


# Another dtype over the same memory ---------------------------------------------------------------


def _view_as_real(xp: Any, self: Any) -> Any:
    real = self.real
    if not self.size:  # no memory to be seen
        return xp.zeros((*self.shape, 2), real.dtype)
    return xp.lib.stride_tricks.as_strided(real, (*self.shape, 2), (*self.strides, real.itemsize))


def is_complex_pairs(array: Any) -> bool:
    """Whether pairs of numbers in the last dim lie in memory as complex numbers do."""
    *rest, last = layout_of(array)
    return last == 1 and all(n == 1 or s % 2 == 0 for n, s in zip(array.shape, rest))


def _begins_evenly(array: Any) -> bool:
    """Whether an array, and each example of it inside vmap, begins where a pair may."""
    pair = 2 * array.itemsize
    while any_batched((array,)):
        array = array.values
        if array.shape[0] > 1 and array.strides[0] % pair:
            return False
    return address_of(array) % pair == 0


def _view_as_complex(xp: Any, self: Any) -> Any:
    if not is_complex_pairs(self) or self.size and not _begins_evenly(self):
        self = self.copy()
    kind = "complex128" if self.dtype == "float64" else "complex64"
    if self.dtype.itemsize < 4:
        self = self.astype("float32")
    if not self.size:
        return xp.zeros(self.shape[:-1], kind)
    first = xp.lib.stride_tricks.as_strided(self, (2,), (self.itemsize,)).view(kind)
    return xp.lib.stride_tricks.as_strided(first, self.shape[:-1], self.strides[:-1])


row(
    "view_as_real", "self", _view_as_real, NONE, view=True, holomorphic=False,
    self=lambda m, g: m.view_as_complex(g),
    jvp=lambda m, self_t: m.view_as_real(self_t),
)  # fmt: skip

row(
    "view_as_complex", "self", _view_as_complex, NONE, view=True, holomorphic=False,
    self=lambda m, g: m.view_as_real(g),
    jvp=lambda m, self_t: m.view_as_complex(self_t),
    doc="a copy where the pairs do not lie side by side",
)  # fmt: skip


def _of_pairs(xp: Any, parts: Any, first: Any, second: Any) -> Any:
    """Complex numbers of two `parts` of arrays, in the order in which both lie: CuPy's functions
    answer in that of the dims.
    """
    axes = order_of(first) if first.shape == second.shape else None
    if axes is None or order_of(second) != axes:
        return _view_as_complex(xp, xp.stack(parts(first, second), -1))
    pairs = xp.stack(parts(first.transpose(axes), second.transpose(axes)), -1)
    back = sorted(range(len(axes)), key=axes.__getitem__)
    return _view_as_complex(xp, pairs).transpose(back)


def _complex(xp: Any, real: Any, imag: Any) -> Any:
    return _of_pairs(xp, lambda real, imag: (real, imag), real, imag)


def _polar(xp: Any, abs: Any, angle: Any) -> Any:
    parts = lambda abs, angle: (abs * xp.cos(angle), abs * xp.sin(angle))
    return _of_pairs(xp, parts, abs, angle)


def _of_parts(m: Any, real: Any, imag: Any) -> Any:
    """Real and imaginary parts of which one may be None, for zero."""
    nothing = m.zero_like(imag if real is None else real)
    return m.complex(nothing if real is None else real, nothing if imag is None else imag)


row(
    "complex", "real imag", _complex, holomorphic=False,
    real=lambda m, g: m.real(g),
    imag=lambda m, g: m.imag(g),
    jvp=lambda m, real_t, imag_t: _of_parts(m, real_t, imag_t),
)  # fmt: skip

row(
    "polar", "abs angle", _polar, holomorphic=False,
    abs=lambda m, g, angle: m.real(g) * m.cos(angle) + m.imag(g) * m.sin(angle),
    angle=lambda m, g, abs, angle: abs * (m.imag(g) * m.cos(angle) - m.real(g) * m.sin(angle)),
    jvp=lambda m, abs, angle, abs_t, angle_t: _of_parts(
        m,
        sum_of(None if abs_t is None else abs_t * m.cos(angle),
               None if angle_t is None else -abs * m.sin(angle) * angle_t),
        sum_of(None if abs_t is None else abs_t * m.sin(angle),
               None if angle_t is None else abs * m.cos(angle) * angle_t),
    ),
)  # fmt: skip


def _view_dtype(xp: Any, self: Any, dtype: Any) -> Any:
    out = self.view(dtype) if self.ndim else self.reshape(1).view(dtype)
    return out if self.ndim else out.reshape(())


row("view_dtype", "self", _view_dtype, view=True, node="ViewBackward1",
    doc="the same bytes as another dtype")  # fmt: skip
