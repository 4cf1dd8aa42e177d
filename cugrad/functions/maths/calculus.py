"""Numerical integration and differentiation as PyTorch spells them, composed of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.recording.record import recorded
from ...ops.dims import canonical_dim, canonical_dims
from ...tensor import Tensor
from ..calls.arguments import array_of
from ..shapes.copies import cat
from ..shapes.views import narrow

__all__ = ["cumulative_trapezoid", "gradient", "trapezoid", "trapz"]


# Integrals ----------------------------------------------------------------------------------------


def _strips(function: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> tuple[Tensor, int]:
    """The areas between neighbours along a dim, under the straight lines that join them."""
    shape = array_of(y, function, "y").shape
    dim = canonical_dim(dim, len(shape))
    if not shape:
        raise IndexError(f"{function}: y has no dimension to integrate along")
    if y.dtype.name == "bool":
        raise RuntimeError(f"{function}: received a bool input for `y`, but bool is not supported")
    n = shape[dim]
    rest = max(n - 1, 0)
    right = narrow(y, dim, min(1, n), rest)
    total = recorded.add(right, narrow(y, dim, 0, rest))
    if x is None:
        return recorded.div(recorded.mul(total, dx), 2.0), dim
    return recorded.div(recorded.mul(total, _widths(function, x, shape, dim)), 2.0), dim


def _widths(function: str, x: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    """The distances between neighbours of x along dim, in a shape that y's can be multiplied by."""
    own = array_of(x, function, "x", 2).shape
    if x.dtype.name == "bool":
        raise RuntimeError(f"{function}: received a bool input for `x`, but bool is not supported")
    if len(own) < 2:
        own = own or (1,)  # one point, and no distance
        if own[0] != shape[dim] and x._array.ndim:
            raise RuntimeError(
                f"{function}: There must be one `x` value for each sample point: got {own[0]} "
                f"and {shape[dim]}"
            )
        x = recorded.reshape(x, (own[0],) + (1,) * (len(shape) - dim - 1))
        at = 0
    else:
        x = recorded.reshape(x, (1,) * (len(shape) - len(own)) + own)
        at = dim
    n = x._array.shape[at]
    rest = max(n - 1, 0)
    return recorded.sub(narrow(x, at, min(1, n), rest), narrow(x, at, 0, rest))


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral along a dim by the trapezoidal rule, at the points `x` or `dx` (1) apart.

    >>> import cugrad as torch
    >>> torch.trapezoid(torch.tensor([1.0, 5.0, 10.0]))
    tensor(10.5000)
    """
    dx = _spacing("trapezoid", x, dx)
    if array_of(y, "trapezoid", "y").ndim and not y._array.shape[canonical_dim(dim, y._array.ndim)]:
        return recorded.sum(y.detach(), (canonical_dim(dim, y._array.ndim),), False)
    strips, dim = _strips("trapezoid", y, x, dx, dim)
    return recorded.sum(strips, (dim,), False)


trapz = trapezoid


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1
) -> Tensor:
    """The integrals from the first point to each other one along a dim; see `trapezoid`.

    >>> import cugrad as torch
    >>> torch.cumulative_trapezoid(torch.tensor([1.0, 5.0, 10.0]))
    tensor([ 3.0000, 10.5000])
    """
    strips, dim = _strips(
        "cumulative_trapezoid", y, x, _spacing("cumulative_trapezoid", x, dx), dim
    )
    return recorded.cumsum(strips, dim)


def _spacing(function: str, x: Tensor | None, dx: Any) -> Any:
    if x is not None and dx is not None:
        raise TypeError(f"{function}(): got x as well as dx, want one of them")
    return 1 if dx is None else dx


# Derivatives --------------------------------------------------------------------------------------


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The slopes along each dim (or those of `dim`) of values on a grid, by central differences.

    `spacing` is the distance of the points, one for all dims or one for each, or a tensor of the
    points' coordinates for each dim. At the edges the difference is one-sided, of `edge_order`.

    >>> import cugrad as torch
    >>> torch.gradient(torch.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    shape = array_of(input, "gradient").shape
    if edge_order not in (1, 2):
        raise RuntimeError(
            f"torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}"
        )
    if input.dtype.name == "uint8":
        raise RuntimeError("torch.gradient does not support uint8 input.")
    dims = tuple(range(len(shape))) if dim is None else canonical_dims(dim, len(shape))
    spacings = _spacings(spacing, dims, dim)
    for d in dims:
        if shape[d] <= edge_order:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1: got "
                f"{shape[d]} in dim {d}"
            )
    return tuple(
        _slopes(input, d, space, edge_order) for d, space in zip(dims, spacings, strict=True)
    )


def _spacings(spacing: Any, dims: tuple[int, ...], dim: Any) -> list[Any]:
    """The spacing of each dim: numbers, or the coordinates of points."""
    if isinstance(spacing, Tensor) and not spacing._array.ndim:
        spacing = spacing.item()
    if not isinstance(spacing, (Sequence, Tensor)):
        return [1 if spacing is None else spacing] * len(dims)
    spacings = list(spacing) if not isinstance(spacing, Tensor) else [spacing]
    if len(spacings) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to 'self.dim() = {len(dims)}', but got a list of length {len(spacings)}"
        )
    for d, space in zip(dims, spacings, strict=True):
        if isinstance(space, Tensor) and space._array.ndim != 1:
            raise RuntimeError(
                "torch.gradient expected each element of spacing to have one dimension, but got "
                f"an element with {space._array.ndim} dimensions (for dim {d})"
            )
    return spacings


def _slopes(input: Tensor, dim: int, space: Any, edge_order: int) -> Tensor:
    n = input._array.shape[dim]

    def at(start: int, length: int = 1) -> Tensor:
        return narrow(input, dim, start, length)

    def slope(a: Tensor, b: Tensor, width: Any) -> Tensor:
        return recorded.div(recorded.sub(b, a), width)

    if isinstance(space, Tensor):
        if space._array.shape[0] != n:
            raise RuntimeError(
                "torch.gradient expected each element of spacing to have the size of its dim: got "
                f"{space._array.shape[0]} and {n}"
            )
        rest = (1,) * (input._array.ndim - dim - 1)
        points = recorded.reshape(space, (n, *rest))
        h = recorded.sub(narrow(points, 0, 1, n - 1), narrow(points, 0, 0, n - 1))
        before, after = narrow(h, 0, 0, n - 2), narrow(h, 0, 1, n - 2)
        both = before + after
        first, last = narrow(h, 0, 0, 1), narrow(h, 0, n - 2, 1)
        inner = (
            at(0, n - 2) * (-after / (before * both))
            + at(1, n - 2) * ((after - before) / (before * after))
            + at(2, n - 2) * (before / (after * both))
        )
        if edge_order == 2:
            second, former = narrow(h, 0, 1, 1), narrow(h, 0, n - 3, 1)
            left = _parabola(at(0), at(1), at(2), first, second)
            right = -_parabola(at(n - 1), at(n - 2), at(n - 3), last, former)
    else:
        first = last = space
        inner = slope(at(0, n - 2), at(2, n - 2), 2 * space)
        if edge_order == 2:
            left = _parabola(at(0), at(1), at(2), space, space)
            right = -_parabola(at(n - 1), at(n - 2), at(n - 3), space, space)
    if edge_order == 1:
        left, right = slope(at(0), at(1), first), slope(at(n - 2), at(n - 1), last)
    return cat([left, inner, right], dim)


def _parabola(a: Tensor, b: Tensor, c: Tensor, h: Any, k: Any) -> Tensor:
    """The slope at a of the parabola through a, b and c, which lie h and k apart."""
    both = h + k
    return a * (-(2 * h + k) / (h * both)) + b * (both / (h * k)) + c * (-h / (k * both))


METHODS: dict[str, Any] = {}
