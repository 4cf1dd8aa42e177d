"""Rows that move elements and do no arithmetic: views, copies, joining, and their adjoints.

Dims are counted from the front; shapes hold no -1.
"""

from __future__ import annotations

from itertools import accumulate, chain
from math import prod
from typing import Any

from ...backends.copies import channels_lie_last
from ..dims import inverse_dims, keeps_order, view_strides
from ..table import LINEAR, in_order, row

Shape = tuple[int, ...]
Index = tuple[Any, ...]  # of slices, ints and None: what NumPy calls basic indexing


# Views --------------------------------------------------------------------------------------------


def is_viewable(array: Any, shape: Shape) -> bool:
    """Whether the elements of `array` can be seen in `shape` where they lie."""
    return array.flags.c_contiguous or view_strides(array.shape, array.strides, shape) is not None


def _view(xp: Any, self: Any, shape: Shape) -> Any:
    if not is_viewable(self, shape):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return self.reshape(shape)


row("view", "self", _view, LINEAR, view=True,
    self=lambda m, g, self_shape: m.reshape(g, self_shape))  # fmt: skip

row(
    "reshape", "self",
    lambda xp, self, shape: self.reshape(shape),
    LINEAR, view=True, node="ReshapeAliasBackward0",
    self=lambda m, g, self_shape: m.reshape(g, self_shape),
    doc="for formulas: a view where one is possible, else a copy",
)  # fmt: skip

row(
    "unsafe_view", "self",
    lambda xp, self, shape: _clone(xp, self, "C").reshape(shape),
    LINEAR,
    self=lambda m, g, self_shape: m.reshape(g, self_shape),
    doc="a copy in another shape: what the public reshape is where no view is possible",
)  # fmt: skip

row(
    "permute", "self",
    lambda xp, self, dims: self.transpose(dims),
    LINEAR, view=True,
    self=lambda m, g, dims: m.permute(g, inverse_dims(dims)),
)  # fmt: skip


row(
    "transpose", "self",
    lambda xp, self, dim0, dim1: self.swapaxes(dim0, dim1) if self.ndim else self[...],
    LINEAR, view=True,
    self=lambda m, g, dim0, dim1: m.transpose(g, dim0, dim1),
)  # fmt: skip

row("alias", "self", lambda xp, self: self[...], LINEAR, view=True, self=lambda m, g: m.alias(g))

row("t", "self", lambda xp, self: self.T, LINEAR, view=True, self=lambda m, g: m.t(g))

row(
    "mT", "self",
    lambda xp, self: self.swapaxes(-1, -2),
    LINEAR, view=True, node="TransposeBackward0",
    self=lambda m, g: m.mT(g),
)  # fmt: skip


def _expand(xp: Any, self: Any, size: Shape) -> Any:
    return self.reshape(size) if self.size == prod(size) else xp.broadcast_to(self, size)


row(
    "expand", "self", _expand, LINEAR, view=True,
    self=lambda m, g, self_shape: m.sum_to_shape(g, self_shape),
)  # fmt: skip

row(
    "squeeze", "self",
    lambda xp, self, dim: self.reshape([n for i, n in enumerate(self.shape) if i not in dim]),
    LINEAR, view=True, node="SqueezeBackward1",
    self=lambda m, g, self_shape: m.reshape(g, self_shape),
    doc="dim names dims of extent 1 only",
)  # fmt: skip

row(
    "unsqueeze", "self",
    lambda xp, self, dim: self.reshape((*self.shape[:dim], 1, *self.shape[dim:])),
    LINEAR, view=True,
    self=lambda m, g, self_shape: m.reshape(g, self_shape),
)  # fmt: skip


def _at(dim: int, index: Any) -> Index:
    return (*(slice(None),) * dim, index)


row(
    "select", "self",
    lambda xp, self, dim, index: self[(*_at(dim, index), ...)],  # the dots keep 0-d results views
    LINEAR, view=True,
    self=lambda m, g, self_shape, dim, index: m.slice_backward(g, self_shape, _at(dim, index)),
)  # fmt: skip

row(
    "slice_view", "self",
    lambda xp, self, index: self[(*index, ...)],
    LINEAR, view=True, node="SliceBackward0",
    self=lambda m, g, self_shape, index: m.slice_backward(g, self_shape, index),
    doc="basic indexing: slices, ints and None",
)  # fmt: skip


def _slice_backward(xp: Any, grad: Any, shape: Shape, index: Index) -> Any:
    out = xp.zeros(shape, grad.dtype)
    out[(*index, ...)] = grad
    return out


row(
    "slice_backward", "grad", _slice_backward, LINEAR, node="SliceBackwardBackward0",
    grad=lambda m, g, index: m.slice_view(g, index),
    doc="the adjoint of slice_view: zeros of a shape, with `grad` at `index`",
)  # fmt: skip


def _diagonal(xp: Any, self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rows, columns = self.shape[dim1], self.shape[dim2]
    n = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    if n:  # as_strided, because NumPy's diagonal cannot be written to
        self = self[_at(dim2 if offset >= 0 else dim1, slice(abs(offset), None))]
    rest = [d for d in range(self.ndim) if d not in (dim1, dim2)]
    if not self.size:  # no memory to be seen
        return xp.zeros((*[self.shape[d] for d in rest], n), self.dtype)
    return xp.lib.stride_tricks.as_strided(
        self,
        (*[self.shape[d] for d in rest], n),
        (*[self.strides[d] for d in rest], self.strides[dim1] + self.strides[dim2]),
    )


row(
    "diagonal", "self", _diagonal, LINEAR, view=True,
    self=lambda m, g, self_shape, offset, dim1, dim2: m.diagonal_backward(
        g, self_shape, offset, dim1, dim2
    ),
)  # fmt: skip


def _diagonal_backward(
    xp: Any, grad: Any, shape: Shape, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    out = xp.zeros(shape, grad.dtype)
    _diagonal(xp, out, offset, dim1, dim2)[...] = grad
    return out


row(
    "diagonal_backward", "grad", _diagonal_backward, LINEAR,
    grad=lambda m, g, offset, dim1, dim2: m.diagonal(g, offset, dim1, dim2),
    doc="the adjoint of diagonal: zeros of a shape, with `grad` on the diagonal",
)  # fmt: skip


# Several views at once ----------------------------------------------------------------------------


def _listed(g: Any) -> Any:
    """The gradients of a list of outputs: an op with one output gets one, not a list of one."""
    return g if type(g) in (tuple, list) else (g,)


def _unbind_vjp(m: Any, g: Any, self_shape: Shape, dim: int) -> Any:
    parts = [(i, x) for i, x in enumerate(_listed(g)) if x is not None]
    i, like = parts[0]
    if len(parts) == 1:
        return m.slice_backward(like, self_shape, _at(dim, i))
    if len(parts) == self_shape[dim]:
        return m.stack([x for _, x in parts], dim)
    nothing = m.zero_like(like)
    return m.stack([nothing if x is None else x for x in _listed(g)], dim)


row(
    "unbind", "self",
    lambda xp, self, dim=0: [self[(*_at(dim, i), ...)] for i in range(self.shape[dim])],
    LINEAR, view=True, outputs="results*", self=_unbind_vjp,
)  # fmt: skip


def _split(xp: Any, self: Any, split_sizes: Shape, dim: int = 0, even: bool = False) -> list[Any]:
    ends = list(accumulate(split_sizes))
    return [self[_at(dim, slice(a, b))] for a, b in zip([0, *ends], ends)]


def _split_vjp(m: Any, g: Any, self_shape: Shape, split_sizes: Shape, dim: int) -> Any:
    parts = [(i, x) for i, x in enumerate(_listed(g)) if x is not None]
    i, like = parts[0]
    if len(parts) == 1:
        start = sum(split_sizes[:i])
        place = _at(dim, slice(start, start + split_sizes[i], 1))
        return m.slice_backward(like, self_shape, place)
    head, tail = tuple(self_shape[:dim]), tuple(self_shape[dim + 1 :])
    whole = [
        m.new_zeros(like, (*head, size, *tail)) if x is None else x
        for x, size in zip(_listed(g), split_sizes)
    ]
    return m.cat(whole, dim)


row(
    "split_with_sizes", "self", _split, LINEAR, view=True, outputs="results*",
    node=lambda params: "SplitBackward0" if params.get("even") else "SplitWithSizesBackward0",
    self=_split_vjp,
    doc="pieces of these sizes along a dim; `even` says that the user gave one size",
)  # fmt: skip

row("new_zeros", "self", lambda xp, self, shape: xp.zeros(shape, self.dtype))


# Copies -------------------------------------------------------------------------------------------


def _clone(xp: Any, self: Any, order: str = "K") -> Any:
    order, copied = order if keeps_order(self) else "C", xp.copied
    return self.copy(order) if copied is None else copied(self, order)


row(
    "clone", "self",
    _clone,
    LINEAR,
    self=lambda g: g,
    doc='order "C" copies to contiguous memory, "K" keeps the order of dense strides',
)  # fmt: skip

row(
    "flip", "self",
    lambda xp, self, dims: xp.flip(self, dims).copy("K" if keeps_order(self) else "C"),
    LINEAR,
    self=lambda m, g, dims: m.flip(g, dims),
)  # fmt: skip


def _rot90(xp: Any, self: Any, k: int, dims: Shape) -> Any:
    if k % 2 == 0:
        return xp.flip(self, dims).copy() if k == 2 else self.copy("C")
    return xp.flip(self, dims[1] if k == 1 else dims[0]).copy().swapaxes(*dims)


row(
    "rot90", "self", _rot90, LINEAR,
    self=lambda m, g, k, dims: m.rot90(g, -k % 4, dims),
    doc="k is 0 to 3",
)  # fmt: skip

row(
    "roll", "self",
    lambda xp, self, shifts, dims=(): xp.roll(self, shifts, dims or None),
    LINEAR, dense=True,
    self=lambda m, g, shifts, dims: m.roll(g, tuple([-s for s in shifts]), dims),
    doc="without dims the elements roll as if the tensor were flat",
)  # fmt: skip

row("tril", "self", lambda xp, self, diagonal=0: xp.tril(self, diagonal), LINEAR, dense=True,
    self=lambda m, g, diagonal: m.tril(g, diagonal))  # fmt: skip

row("triu", "self", lambda xp, self, diagonal=0: xp.triu(self, diagonal), LINEAR, dense=True,
    self=lambda m, g, diagonal: m.triu(g, diagonal))  # fmt: skip


def _repeat_backward(m: Any, g: Any, self_shape: Shape, repeats: Shape) -> Any:
    shape = (1,) * (len(repeats) - len(self_shape)) + tuple(self_shape)
    blocks = m.reshape(g, tuple(chain.from_iterable(zip(repeats, shape))))
    return m.reshape(m.sum(blocks, tuple(range(0, 2 * len(repeats), 2))), self_shape)


row(
    "repeat", "self",
    lambda xp, self, repeats: xp.tile(self, repeats) if repeats else self.copy(),
    LINEAR, self=_repeat_backward,
)  # fmt: skip


# Joining ------------------------------------------------------------------------------------------


def _cat_vjp(m: Any, g: Any, tensors_shapes: tuple[Shape, ...], dim: int) -> tuple[Any, ...]:
    ends = list(accumulate([s[dim] for s in tensors_shapes]))
    return tuple([m.slice_view(g, _at(dim, slice(a, b, 1))) for a, b in zip([0, *ends], ends)])


def _cat(xp: Any, tensors: Any, dim: int = 0) -> Any:
    """In the order of the dims, or with channels last where those of all tensors lie so."""
    value = xp.concatenate(tensors, dim)
    last = not value.flags.c_contiguous and all(map(channels_lie_last, tensors))
    return in_order(xp, value, last)


row("cat", "tensors*", _cat, LINEAR, promote="common", tensors=_cat_vjp)

row(
    "stack", "tensors*",
    lambda xp, tensors, dim=0: xp.stack(tensors, dim),
    LINEAR, promote="common", dense=True,
    tensors=lambda m, g, tensors_shapes, dim: tuple(
        [m.select(g, dim, i) for i in range(len(tensors_shapes))]
    ),
)  # fmt: skip
