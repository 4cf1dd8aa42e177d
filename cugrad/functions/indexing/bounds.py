"""Whether indices point into the tensor: looked at on the host, and on a GPU when asked to."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.several import at_home
from ...cuda.index_checks import are_indices_checked

__all__ = ["check_index", "check_integers", "check_picks", "is_looked_at"]


def is_looked_at(array: Any) -> bool:
    """Whether the values of an index array are compared with what they point into."""
    return isinstance(array, np.ndarray) or are_indices_checked()


def check_integers(
    function: str, array: Any, size: int, dim: int, error: type[Exception], least: int = 0
) -> None:
    """`error` for an index below `least`, or not below `size`."""
    if array.size and is_looked_at(array):
        with at_home(array):
            low, high = int(array.min()), int(array.max())
        if low < least or high >= size:
            raise error(
                f"index {low if low < least else high} is out of bounds for dimension {dim} "
                f"with size {size} ({function})"
            )


def check_index(
    function: str, index: Any, size: int, dim: int, error: type[Exception] = RuntimeError
) -> None:
    """Refuses an index tensor that is no integers, or one that points outside."""
    array = index._array
    if array.dtype.name not in ("int64", "int32"):
        if not array.size and array.dtype.kind in "iu":
            return
        raise RuntimeError(
            f"{function}(): Expected dtype int32/int64 for index, got {index.dtype}; "
            "convert it with index.long()"
        )
    check_integers(function, array, size, dim, error)


def check_picks(shape: tuple[int, ...], indices: tuple[Any, ...]) -> None:
    """IndexError for index arrays, as `x[...]` takes them, that point outside on a GPU."""
    if not are_indices_checked():
        return
    dim = 0
    for item in indices:
        if not hasattr(item, "dtype"):
            dim += item is not None
        elif item.dtype.kind == "b":
            dim += item.ndim
        else:
            check_integers("index", item, shape[dim], dim, IndexError, -shape[dim])
            dim += 1
