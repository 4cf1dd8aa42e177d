"""Rows of extrema: the largest, the smallest, and where they are.

`dim` is a tuple of dims counted from the front, or None for all; an int where it says so.
"""

from __future__ import annotations

from typing import Any

from ...dtypes import is_floating
from ..precision import sum_of
from ..table import row
from .reduce import Dims, Shape, kept


def _tie_share(xp: Any, self: Any, extreme: Any, dim: Dims = None) -> Any:
    ties = self == extreme
    if is_floating(self.dtype):  # where the extreme is nan, every nan has a share
        ties = ties | (xp.isnan(extreme) & xp.isnan(self))
    share = xp.maximum(xp.sum(ties, dim, "int64", True), 1).astype(self.dtype)
    return ties.astype(self.dtype) / share


row(
    "tie_share", "self extreme", _tie_share, kernels=(1, 0),
    doc="1/n at each of the n elements along dim that equal the extreme, 0 elsewhere",
)  # fmt: skip


def _extreme_vjp(
    m: Any, g: Any, self: Any, result: Any, self_shape: Shape, dim: Dims, keepdim: bool
) -> Any:
    share = m.tie_share(self, kept(m, result, self_shape, dim, keepdim), dim)
    return kept(m, g, self_shape, dim, keepdim) * share


def _extreme_jvp(
    m: Any, self: Any, self_t: Any, result: Any, self_shape: Shape, dim: Dims, keepdim: bool
) -> Any:
    share = m.tie_share(self, kept(m, result, self_shape, dim, keepdim), dim)
    return m.sum(self_t * share, dim, keepdim)


def _amax(xp: Any, self: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return xp.max(self, dim, keepdims=keepdim)


def _amin(xp: Any, self: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return xp.min(self, dim, keepdims=keepdim)


row("amax", "self", _amax, dense=True, self=_extreme_vjp, jvp=_extreme_jvp,
    kernels=(0, 1), doc="ties share the gradient")  # fmt: skip
row("amin", "self", _amin, dense=True, self=_extreme_vjp, jvp=_extreme_jvp,
    kernels=(0, 1), doc="ties share the gradient")  # fmt: skip
row("max_all", "self", _amax, node="MaxBackward1", self=_extreme_vjp, jvp=_extreme_jvp,
    kernels=(0, 1))  # fmt: skip
row("min_all", "self", _amin, node="MinBackward1", self=_extreme_vjp, jvp=_extreme_jvp,
    kernels=(0, 1))  # fmt: skip


def _aminmax_vjp(
    m: Any, g: Any, self: Any, min: Any, max: Any, self_shape: Shape, dim: Dims, keepdim: bool
) -> Any:
    return sum_of(*[
        None if x is None else _extreme_vjp(m, x, self, result, self_shape, dim, keepdim)
        for x, result in zip(g, (min, max), strict=True)
    ])  # fmt: skip


row(
    "aminmax", "self",
    lambda xp, self, dim=None, keepdim=False: (
        _amin(xp, self, dim, keepdim), _amax(xp, self, dim, keepdim)
    ),
    outputs="min max", self=_aminmax_vjp,
    jvp=lambda m, self, self_t, min, max, self_shape, dim, keepdim: tuple([
        _extreme_jvp(m, self, self_t, result, self_shape, dim, keepdim) for result in (min, max)
    ]),
    doc="ties share the gradient",
)  # fmt: skip


def picked(xp: Any, self: Any, indices: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    values = xp.take_along_axis(self, indices, dim)
    if not keepdim:
        values, indices = values.squeeze(dim), indices.squeeze(dim)
    return values, indices


def _max(xp: Any, self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return picked(xp, self, xp.argmax(self, dim, keepdims=True), dim, keepdim)


def _min(xp: Any, self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return picked(xp, self, xp.argmin(self, dim, keepdims=True), dim, keepdim)


def picked_vjp(m: Any, g: Any, indices: Any, self_shape: Shape, dim: int, keepdim: bool) -> Any:
    g, indices = (kept(m, x, self_shape, dim, keepdim) for x in (g, indices))
    return m.gather_backward(g, indices, self_shape, dim)


def picked_jvp(
    m: Any, self_t: Any, indices: Any, self_shape: Shape, dim: int, keepdim: bool
) -> Any:
    tangent = m.gather(self_t, kept(m, indices, self_shape, dim, keepdim), dim)
    return tangent if keepdim else m.squeeze(tangent, (dim,)), None


for _name, _forward in (("max", _max), ("min", _min)):
    row(
        _name, "self", _forward, outputs="values indices", nondifferentiable="indices",
        self=picked_vjp, jvp=picked_jvp, doc="along one dim; the first of equals is taken",
        kernels=(1, 0),
    )  # fmt: skip


def _arg(which: str) -> Any:
    def forward(xp: Any, self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None and keepdim:
            return getattr(xp, which)(self.reshape(-1), 0).reshape((1,) * self.ndim)
        return getattr(xp, which)(self, dim, keepdims=keepdim)

    return forward


row("argmax", "self", _arg("argmax"))
row("argmin", "self", _arg("argmin"))
