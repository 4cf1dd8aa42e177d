"""Rows of the discrete Fourier transform: complex, from real, and to real numbers.

As PyTorch's primitives: `dim` is a tuple of dims, the last of which is halved by the transforms of
real numbers, and `normalization` says what the sum is divided by.
"""

from __future__ import annotations

from typing import Any

from .table import COSTLY, LINEAR, row

Shape = tuple[int, ...]

# By direction and normalization (0 nothing, 1 the root of the count, 2 the count): NumPy's word.
FORWARD = ("backward", "ortho", "forward")
INVERSE = ("forward", "ortho", "backward")


def _span(shape: Shape, dim: int, start: int, stop: int) -> tuple[slice, ...]:
    """The index of the elements from `start` to `stop` of one dim."""
    return (*(slice(None),) * dim, slice(start, stop))


def _c2c(xp: Any, self: Any, dim: Shape, normalization: int, forward: bool) -> Any:
    if not dim:
        return self.copy()
    if forward:
        return xp.fft.fftn(self, axes=dim, norm=FORWARD[normalization])
    return xp.fft.ifftn(self, axes=dim, norm=INVERSE[normalization])


row(
    "fft_c2c", "self", _c2c, LINEAR, promote="cast",
    self=lambda m, g, dim, normalization, forward: m.fft_c2c(g, dim, normalization, forward),
    doc="the matrix of the transform is symmetric; the engine conjugates around the formula",
    cost=COSTLY,
)  # fmt: skip


def _r2c(xp: Any, self: Any, dim: Shape, normalization: int, onesided: bool) -> Any:
    if onesided:
        return xp.fft.rfftn(self, axes=dim, norm=FORWARD[normalization])
    return xp.fft.fftn(self, axes=dim, norm=FORWARD[normalization])


def _r2c_vjp(
    m: Any, g: Any, self_shape: Shape, dim: Shape, normalization: int, onesided: bool
) -> Any:
    """The half that was left out gets no gradient; the engine takes the real part."""
    if onesided:
        g = m.slice_backward(g, self_shape, _span(self_shape, dim[-1], 0, g.shape[dim[-1]]))
    return m.fft_c2c(g, dim, normalization, True)


row("fft_r2c", "self", _r2c, LINEAR, promote="cast",
    self=_r2c_vjp, cost=COSTLY)  # fmt: skip


def _c2r(xp: Any, self: Any, dim: Shape, normalization: int, last_dim_size: int) -> Any:
    sizes = [*[self.shape[d] for d in dim[:-1]], last_dim_size]
    return xp.fft.irfftn(self, s=sizes, axes=dim, norm=INVERSE[normalization])


def _c2r_vjp(m: Any, g: Any, dim: Shape, normalization: int, last_dim_size: int) -> Any:
    """Each number but the first, and the middle one, stands for its mirror image too."""
    half = m.fft_r2c(g, dim, normalization, True)
    twice = _span(half.shape, dim[-1], 1, last_dim_size - half.shape[dim[-1]] + 1)
    return half + m.slice_backward(m.slice_view(half, twice), half.shape, twice)


row("fft_c2r", "self", _c2r, LINEAR, promote="cast", holomorphic=False,
    self=_c2r_vjp, cost=COSTLY)  # fmt: skip
