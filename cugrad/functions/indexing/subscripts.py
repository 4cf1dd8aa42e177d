"""What stands in the brackets of `x[...]`, made into a view index and an index of arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.mode import state
from ...backends import BY_ARRAY_TYPE, backend_of
from ...backends.batched.arrays import BatchedArray
from ...backends.several import at_home, beside, there
from ...ops.table import TABLE, raw
from ...runtime.frames import warn_user
from ...tensor import Tensor
from .bounds import check_picks

__all__ = ["FULL", "parse", "picked"]

Index = tuple[Any, ...]
FULL = slice(None)
BYTE_TEXT = (
    "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
)


def parse(array: Any, index: Any, only_advanced: bool = False) -> tuple[Index | None, Index | None]:
    """A canonical pair (basic, advanced) for an index of `array`, each None where there is none.

    `basic`, of ints, slices and None, is applied first and gives a view. `advanced`, of full slices
    and arrays of the backend of `array`, picks from that view. An int never counts as an array, so
    that the dims of the result stand where PyTorch has them. With `only_advanced` the index is a
    tuple of arrays and None, as index_put takes, where None means a full slice.
    """
    items = list(index) if isinstance(index, tuple) or _is_tuple(index) else [index]
    if only_advanced:
        items = [FULL if i is None else i for i in items]
    items = [_item(array, i) for i in items]
    if only_advanced:  # an index without dims is an array, too
        items = [beside(array, np.asarray(i)) if i.__class__ is int else i for i in items]
    items = _without_dots(items, array.ndim)
    basic: list[Any] = []
    advanced: list[Any] = []
    has_arrays, is_trivial = False, True
    dim = 0
    for item in items:
        if item is None:
            basic.append(None)
            advanced.append(FULL)
            is_trivial = False
        elif item.__class__ is int:
            basic.append(_in_range(item, array.shape, dim))
            is_trivial = False
            dim += 1
        elif item.__class__ is slice:
            item = _canonical_slice(item, array.shape[dim])
            is_trivial = is_trivial and item == FULL
            basic.append(item)
            advanced.append(FULL)
            dim += 1
        else:
            has_arrays = True
            if item.dtype.kind == "b":
                _check_mask(item, array.shape, dim)
            advanced.append(item)
            basic.extend([FULL] * _dims_of(item))
            dim += _dims_of(item)
    if not has_arrays:
        return tuple(basic), None
    while advanced[-1].__class__ is slice:
        advanced.pop()
    return None if is_trivial else tuple(basic), tuple(advanced)


def _is_tuple(index: Any) -> bool:
    """Whether a list stands for a tuple, as in NumPy of old: a short one of more than numbers."""
    return index.__class__ is list and len(index) < 32 and any(
        i is None or i is Ellipsis or isinstance(i, (slice, list, tuple, Tensor, np.ndarray))
        for i in index
    )  # fmt: skip


def picked(row: Callable[..., Any], tensors: tuple[Tensor, ...], indices: Index, *rest: Any) -> Any:
    """A row called with index arrays, whose errors say `dimension` as PyTorch's do.

    A node would keep the arrays until backward, so it gets copies: who changes a mask in place
    after the call does not change the gradient.
    """
    check_picks(tensors[0]._array.shape, indices)
    if state.grad_enabled and True in [t._requires_grad for t in tensors]:
        with at_home(indices):
            indices = _copies(indices)
    try:
        return row(*tensors, indices, *rest)
    except IndexError as error:
        text = str(error).replace("for axis", "for dimension")
        text = text.replace("indexing arrays", "indexing tensors")
        raise IndexError(text) from None
    except RuntimeError as error:  # what was CuPy's ValueError
        _, said, shapes = str(error).partition(" could not be broadcast together with shapes")
        if not said:
            raise
        raise IndexError(f"shape mismatch: indexing tensors{said}{shapes}") from None


def _copies(indices: Index) -> Index:
    """The same index with copies of its arrays, made by one launch where they can lie in a row."""
    originals = [i for i in indices if hasattr(i, "dtype")]
    if len(originals) < 2 or not _fit_in_a_row(originals):
        return tuple([_copied(i) if hasattr(i, "dtype") else i for i in indices])
    row = backend_of(originals[0]).row_function(TABLE["cat"])
    joined = row([i.reshape(-1) for i in originals], 0)
    copies, start = [], 0
    for i in originals:
        copies.append(joined[start : start + i.size].reshape(i.shape))
        start += i.size
    parts = iter(copies)
    return tuple([next(parts) if hasattr(i, "dtype") else i for i in indices])


def _fit_in_a_row(arrays: list[Any]) -> bool:
    """Whether arrays of a device that has kernels are alike, and each but the last has a multiple
    of 16 bytes: where a kernel reads, it wants to begin at one.
    """
    first = arrays[0]
    backend = BY_ARRAY_TYPE.get(type(first))
    if backend is None or not backend.makes_kernels:
        return False
    if any(x.nbytes % 16 for x in arrays[:-1]):
        return False
    return all(
        type(x) is type(first) and x.dtype == first.dtype and x.size and x.flags.c_contiguous
        for x in arrays
    )


def _copied(index: Any) -> Any:
    backend = BY_ARRAY_TYPE.get(type(index))
    if backend is None or not backend.runs_rows:
        return raw.clone(index, "C")  # type: ignore[attr-defined]
    return backend.row_function(TABLE["clone"])(index, "C")


def _item(array: Any, item: Any) -> Any:
    """An int, a slice, None, ... or an array of the backend of `array`."""
    if item is None or item is Ellipsis or item.__class__ in (int, slice):
        return item
    if isinstance(item, Tensor):
        index = item._array
    elif isinstance(item, (bool, np.bool_, list, tuple, range, np.ndarray)) or (
        hasattr(item, "dtype") and hasattr(item, "shape")
    ):
        index = _array_of_list(item)
    elif hasattr(item, "__index__"):
        return operator.index(item)
    else:
        raise _not_an_index(item)
    if index.dtype.char == "B" and not isinstance(index, np.uint8):  # which is a number
        if index.ndim:
            warn_user(BYTE_TEXT)
        index = there(lambda x: x.astype(bool), index)
    elif not index.ndim and index.dtype.kind in "iu" and type(index) is not BatchedArray:
        return int(index)
    if index.dtype.kind not in "bi":
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    backend = backend_of(array)
    if backend_of(index) is not backend and BatchedArray not in (type(array), type(index)):
        if backend.device_type == "cpu":
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                "(cpu); move them with index.cpu()"
            )
        index = beside(array, index)
    return index


def _array_of_list(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        item = [i._array if isinstance(i, Tensor) else i for i in item]
        if not item:
            return np.zeros(0, np.int64)
    try:
        return np.asarray(item) if not hasattr(item, "dtype") else item
    except ValueError:
        raise _not_an_index(item) from None


def _not_an_index(item: Any) -> Exception:
    kind = TypeError if isinstance(item, str) else IndexError
    return kind(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(item).__name__})"
    )


def _dims_of(item: Any) -> int:
    """How many dims an index item takes up."""
    if item is None or item is Ellipsis:
        return 0
    if item.__class__ in (int, slice) or item.dtype.kind != "b":
        return 1
    return item.ndim


def _without_dots(items: list[Any], ndim: int) -> list[Any]:
    """The items with ... replaced by the full slices that it stands for."""
    used = 0
    dots = None
    for i, item in enumerate(items):
        if item is Ellipsis:
            if dots is not None:
                raise IndexError("an index can only have a single ellipsis ('...')")
            dots = i
        else:
            used += _dims_of(item)
    if used > ndim:
        if not ndim:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a "
                "0-dim tensor to a number"
            )
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    if dots is None:
        return items
    return [*items[:dots], *[FULL] * (ndim - used), *items[dots + 1 :]]


def _in_range(i: int, shape: tuple[int, ...], dim: int) -> int:
    n = shape[dim]
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of bounds for dimension {dim} with size {n}")
    return i + n if i < 0 else i


def _canonical_slice(item: slice, n: int) -> slice:
    if item.step is not None and operator.index(item.step) <= 0:
        raise ValueError("step must be greater than zero")
    start, stop, step = item.indices(n)
    if start == 0 and stop == n and step == 1:
        return FULL
    return slice(start, stop if stop > start else start, step)


def _check_mask(mask: Any, shape: tuple[int, ...], dim: int) -> None:
    if mask.shape != shape[dim : dim + mask.ndim]:
        raise IndexError(
            f"The shape of the mask {list(mask.shape)} at index {dim} does not match the shape of "
            f"the indexed tensor {list(shape)} at index {dim}"
        )
