"""How elements lie in memory: dense, or so that their bytes can be copied, on any device."""

from __future__ import annotations

from typing import Any

__all__ = ["check_copy", "is_dense"]


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
