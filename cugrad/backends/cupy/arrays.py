"""New arrays, and the one argument of a kernel, in as little of the host's time as CuPy allows.

Each is on the path of every launch, so those who launch write out what the functions here do.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy
import numpy as np

__all__ = [
    "Blank",
    "alloc",
    "blank",
    "by_value",
    "empty_like",
    "form_of",
    "new_array",
    "zeros_like",
]

Array = Any  # cupy.ndarray

ndarray, alloc = cupy.ndarray, cupy.cuda.alloc
# An array that `_init` has yet to make: cupy.ndarray(...) looks for keywords first, and for a
# subclass behind it, which takes as long as all the rest.
blank: Any = ndarray.__base__.__new__


class Blank(NamedTuple):
    """What `_init` wants of an array, and the bytes it has room in; without strides it lies in the
    order of its dims.
    """

    shape: tuple[int, ...]
    kind: Any
    size: int
    strides: tuple[int, ...] | None = None


def form_of(
    shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None
) -> Blank:
    """CuPy finds a dtype by its type sooner than by itself, if it is one of NumPy's; and does not
    ask whether it knows the dtype of memory that it is given. Strides are those of all of a memory.
    """
    kind = dtype if dtype.kind == "V" else dtype.type
    return Blank(shape, kind, prod(shape) * dtype.itemsize, strides)


def new_array(form: Blank) -> Array:
    """An array with unknown contents."""
    array = blank(ndarray)
    array._init(form.shape, form.kind, alloc(form.size), form.strides, None)
    return array


def empty_like(a: Array, dtype: Any = None) -> Array:
    """As NumPy's. CuPy finds out how the array lies, which takes as long as all the rest."""
    if not a._c_contiguous:
        return cupy.empty_like(a, dtype)
    dtype = a.dtype if dtype is None else np.dtype(dtype)
    kind, size = dtype if dtype.kind == "V" else dtype.type, a.size * dtype.itemsize
    array = blank(ndarray)
    array._init(a.shape, kind, alloc(size), None, None)
    return array


def zeros_like(a: Array, dtype: Any = None) -> Array:
    """As NumPy's; see `empty_like`."""
    if not a._c_contiguous:
        return cupy.zeros_like(a, dtype)
    array = empty_like(a, dtype)
    array.fill(0)
    return array


def by_value(size: int) -> np.dtype[Any]:
    """The dtype under which a struct of `size` bytes is a kernel's argument.

    CuPy passes the memory of a host array by value, and refuses one of more than one element.
    """
    return np.dtype((np.void, size))
