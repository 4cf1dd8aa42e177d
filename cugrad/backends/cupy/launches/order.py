"""Functions of CuPy's on arrays that lie in another order than that of their dims.

CuPy takes any order, but steps along the last dim, and gives results in the order of the dims: for
channels that lie last it reads and writes elements that are no neighbours. Told of the dims in the
order of memory it sees dense arrays, of one dim, or parts of such, and the result lies as the
operands do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import cupy

__all__ = ["copied", "copyto", "in_memory_order", "order_of", "turned"]

Array = Any  # cupy.ndarray
Axes = tuple[int, ...]
ndarray = cupy.ndarray


def order_of(values: Sequence[Any]) -> tuple[Axes, Axes] | None:
    """The dims of the result from the outermost in memory on, and the way back, where all arrays
    among `values` that are not repeated lie in one order, with or without gaps; None where that is
    the order of the dims, and where they do not, or something else that has dims is among them.
    """
    arrays = [x for x in values if type(x) is ndarray and x.shape]
    if any(type(x) is not ndarray and getattr(x, "shape", ()) for x in values):
        return None
    others = [x for x in arrays if not x._c_contiguous]
    if not others:
        return None
    largest = max(others, key=lambda x: x.size)  # smaller ones are repeated
    shape, strides = largest.shape, largest.strides
    axes = tuple(sorted(range(len(shape)), key=lambda i: (-strides[i], i)))
    for x in arrays:
        if x.shape == shape:
            if not x.transpose(axes)._c_contiguous and not _lies_along(x, axes):
                return None
        elif x.ndim > len(shape) or any(
            n not in (1, whole) for n, whole in zip(reversed(x.shape), reversed(shape))
        ):
            return None
    return axes, tuple(sorted(range(len(axes)), key=axes.__getitem__))


def _lies_along(x: Array, axes: Axes) -> bool:
    """Whether elements lie in the order of these dims, which some may have gaps between."""
    strides = [x.strides[i] for i in axes if x.shape[i] > 1]
    return all(a > b for a, b in zip(strides, [*strides[1:], 0]))


def turned(
    function: Callable[..., Any], values: Sequence[Any], orders: tuple[Axes, Axes], **more: Any
) -> Any:
    """What a function of elements answers for arrays in such an order."""
    axes, back = orders
    result = function(*[_turned(x, axes) for x in values], **more)
    return result.transpose(back) if type(result) is ndarray else result


def _turned(x: Any, axes: Axes) -> Any:
    if type(x) is not ndarray or not x.shape:
        return x
    missing = len(axes) - x.ndim
    return (x.reshape((1,) * missing + x.shape) if missing else x).transpose(axes)


def in_memory_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of elements, told of arrays in the order of memory where they share one."""

    @wraps(function)
    def run(*values: Any, **more: Any) -> Any:
        for x in values:
            if type(x) is ndarray and not x._c_contiguous:
                orders = order_of(values)
                if orders is not None:
                    return turned(function, values, orders, **more)
                break
        return function(*values, **more)

    return run


def copyto(dst: Array, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    """NumPy's copyto."""
    if where is not None:
        cupy.copyto(dst, src, casting, where)
    else:
        _copyto(dst, src, casting=casting)


_copyto = in_memory_order(cupy.copyto)


def copied(a: Array, order: str) -> Array:
    """The copy that the method of arrays makes."""
    return _copy_in_order(a) if order == "K" else a.copy(order)


_copy_in_order = in_memory_order(lambda a: a.copy("K"))
