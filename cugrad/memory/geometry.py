"""Where an array lies in the memory that it shares with others, and how it is found there again."""

from __future__ import annotations

from sys import getrefcount
from typing import Any, TypeAlias

import numpy as np

from ..backends.owners import root_of
from ..ops.views.strided import address_of

__all__ = [
    "BYTE", "Extent", "array_at", "in_memory_order", "is_alone", "memory_of", "root_of", "span_of",
]  # fmt: skip


Extent: TypeAlias = tuple[Any, int, int, int, int]
BYTE = np.dtype("uint8")


def in_memory_order(array: Any) -> Any:
    """A view of an array without gaps whose dims follow memory: C-contiguous; None if it has gaps.

    >>> import numpy as np
    >>> in_memory_order(np.zeros((2, 3)).T).shape
    (2, 3)
    """
    if array.flags.c_contiguous:
        return array
    strides = array.strides
    dense = array.transpose(sorted(range(array.ndim), key=lambda d: -strides[d]))
    return dense if dense.flags.c_contiguous else None


def span_of(array: Any, root: Any) -> Extent:
    """Where an array lies in its root; in itself, where the owner of its memory has gaps.

    That is: the root, its bytes, and of the array the first byte, the lowest and the end.

    >>> import numpy as np
    >>> a = np.zeros((4, 6), np.uint8)
    >>> span_of(a[2:, 1:3], a)[1:]
    (24, 13, 13, 21)
    """
    if array is root and array.flags.c_contiguous:
        nbytes = array.nbytes
        return root, nbytes, 0, 0, nbytes
    below = above = 0
    for n, s in zip(array.shape, array.strides):
        if s < 0:
            below += (n - 1) * s
        else:
            above += (n - 1) * s
    extent = above - below + array.itemsize if array.size else 0
    if array is not root and in_memory_order(root) is not None:
        first = address_of(array) - address_of(root) if extent else 0
        return root, root.nbytes, first, first + below, first + below + extent
    return array, extent, -below, 0, extent


def memory_of(xp: Any, root: Any) -> Any:
    """The bytes that `span_of` counts from, in the order of memory; with the gaps of the root."""
    dense = root if root.flags.c_contiguous else in_memory_order(root)
    if dense is not None:
        return (dense if dense.ndim == 1 else dense.reshape(-1)).view(BYTE)
    lowest = root[tuple([slice(None, None, -1 if s < 0 else 1) for s in root.strides])]
    reach = sum([(n - 1) * s for n, s in zip(lowest.shape, lowest.strides)])
    count = reach // root.itemsize + 1 if root.size else 0
    return xp.lib.stride_tricks.as_strided(lowest, (count,), (root.itemsize,)).view("uint8")


def is_alone(root: Any, views: int) -> bool:
    """Whether the caller and `views` views are the only references to a root."""
    return getrefcount(root) <= ALONE + views


def _references_of_who_asks() -> int:
    root = np.empty(2)
    return _count(root)


def _count(root: Any) -> int:
    return getrefcount(root)


ALONE = _references_of_who_asks()


def array_at(
    xp: Any, flat: Any, offset: int, dtype: Any, shape: tuple[int, ...], strides: Any
) -> Any:
    """The array of these strides whose first element lies at `offset`; None: C-contiguous.

    >>> import numpy as np
    >>> array_at(np, np.arange(8, dtype="uint8"), 6, np.dtype("uint8"), (3,), (-2,))
    array([6, 4, 2], dtype=uint8)
    """
    if strides is None:
        nbytes = dtype.itemsize
        for n in shape:
            nbytes *= n
        if offset or nbytes != flat.nbytes:
            flat = flat[offset : offset + nbytes]
        flat = flat.view(dtype)
        return flat if len(shape) == 1 else flat.reshape(shape)
    skew = offset % dtype.itemsize
    part = flat[skew : skew + (flat.nbytes - skew) // dtype.itemsize * dtype.itemsize]
    elements = part.view(dtype)[offset // dtype.itemsize :]
    return xp.lib.stride_tricks.as_strided(elements, shape, strides)
