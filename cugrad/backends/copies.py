"""How elements lie in memory: dense, or so that their bytes can be copied, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["channels_lie_last", "check_copy", "copied_as_it_lies", "in_its_order", "is_dense",
           "order_of"]  # fmt: skip


def check_copy(dst: Any, src: Any) -> None:
    """ValueError unless the bytes of `src`, in their order, are those that `dst` is to have.

    >>> import numpy as np
    >>> check_copy(np.zeros(2, "float32"), np.zeros(3, "float32"))
    Traceback (most recent call last):
    ValueError: copy_async: got float32 (3,) -> float32 (2,), want equal numbers of bytes
    """
    if dst.nbytes != src.nbytes:
        raise ValueError(
            f"copy_async: got {src.dtype} {src.shape} -> {dst.dtype} {dst.shape}, "
            "want equal numbers of bytes"
        )
    if dst.flags.c_contiguous and src.flags.c_contiguous:
        return
    columns = dst.flags.f_contiguous and src.flags.f_contiguous
    dense = all(a.flags.c_contiguous or a.flags.f_contiguous for a in (dst, src))
    if not columns and (not dense or dst.shape == src.shape):
        raise ValueError(
            f"copy_async: got strides {src.strides} -> {dst.strides}, "
            "want both arrays contiguous in the same order"
        )


def is_dense(array: Any) -> bool:
    """Whether the elements fill one block of memory with no overlap, in whatever order."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return True
    extent = array.itemsize
    for stride, n in sorted(zip(array.strides, array.shape, strict=True)):
        if n == 1:
            continue
        if stride != extent:
            return False
        extent *= n
    return True


def channels_lie_last(array: Any) -> bool:
    """Whether an array of 4 or 5 dims lies with its channels innermost, with or without gaps."""
    if array.ndim not in (4, 5):
        return False
    least, channels = 0, array.strides[1]
    for dim in (1, *range(array.ndim - 1, 1, -1), 0):
        size, step = array.shape[dim], array.strides[dim]
        if not size or step < least or (dim == 0 and least == channels):
            return False
        least = step * size
    return bool(channels)


def in_its_order(array: Any, move: Callable[[Any], Any]) -> Any:
    """What becomes of an array by a move that knows the order of the dims alone, in its own.

    It moves a contiguous array, or one with gaps; one that repeats elements is moved as it is.

    >>> import numpy as np
    >>> in_its_order(np.zeros((2, 3)).T, np.copy).strides
    (8, 24)
    """
    axes = order_of(array)
    if axes is None:
        return move(array)
    moved = move(array.transpose(axes))
    return moved.transpose(sorted(range(len(axes)), key=axes.__getitem__))


def order_of(array: Any) -> list[int] | None:
    """The dims from the outermost in memory on; None for rows, and for elements that repeat.

    >>> import numpy as np
    >>> order_of(np.zeros((2, 3)).T), order_of(np.zeros((2, 3)))
    ([1, 0], None)
    """
    if array.flags.c_contiguous or not array.size or 0 in array.strides:
        return None
    return sorted(range(array.ndim), key=lambda i: (-array.strides[i], -array.shape[i]))


def copied_as_it_lies(host: Any) -> Any:
    """A dense copy of a NumPy array in its order, that of the dims where some of it is repeated."""
    return host.copy("C" if 0 in host.strides else "K")
