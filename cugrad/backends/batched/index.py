"""Indices into arrays with a hidden first dimension, read and written, as `vmap` needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import BatchedArray, ValueDependent, owner

Array = Any
Index = tuple[Any, ...]


def padded(values: Array, ndim: int) -> Array:
    """Values whose logical dimensions are `ndim`: ones stand behind the hidden dimension."""
    lack = ndim - (values.ndim - 1)
    if lack <= 0:
        return values
    return values.reshape((values.shape[0], *(1,) * lack, *values.shape[1:]))


class Place:
    """An index of the values that means a logical index, and how its result is to be turned.

    The result of `values[index]` has the hidden dimension at `hidden`; the dimensions of the index
    arrays, `width` of them, stand where NumPy put them, and belong at `at` (None: where they are).
    """

    __slots__ = ("index", "hidden", "width", "at")

    def __init__(self, index: Index, hidden: int, width: int, at: int | None) -> None:
        self.index, self.hidden, self.width, self.at = index, hidden, width, at


def whole_index(array: BatchedArray, index: Index) -> Place:
    """A logical index, basic or advanced, as one of the array's values."""
    index = tuple([np.asarray(i) if isinstance(i, list) else i for i in index])
    index = _expanded(index, array.ndim)
    if any(type(i) is bool or isinstance(i, np.bool_) for i in index):
        raise NotImplementedError("vmap: indexing with True or False inside vmap")
    for i in index:
        if type(i) is BatchedArray and i.dtype.kind == "b":
            raise ValueDependent(
                "vmap: It looks like you're attempting to use a Tensor as a mask in an index. The "
                "shape of the result would differ by example: use torch.where."
            )
    arrays = [i for i in index if hasattr(i, "dtype") and i.ndim is not None]
    scalars = arrays and any(isinstance(i, int) for i in index)
    if not arrays:
        return Place((slice(None), *index), 0, 0, None)
    advanced = [k for k, i in enumerate(index) if hasattr(i, "dtype") or isinstance(i, int)]
    adjacent = advanced[-1] - advanced[0] + 1 == len(advanced)
    # an index that an outer vmap maps over goes on to that one: the same for all examples here
    batched = [_maps(array, i) for i in index]
    width = max([(1 if i.dtype.kind == "b" else i.ndim) for i in arrays], default=0)
    before = sum(1 for i in index[: advanced[0]] if i is None or isinstance(i, slice))
    if not any(batched):
        if adjacent or not (arrays or scalars):
            return Place((slice(None), *index), 0, 0, None)
        return Place((slice(None), *index), width, width, None)
    xp = owner(array.values).xp
    rows = xp.arange(array.values.shape[0]).reshape((-1, *(1,) * width))
    turned = [padded(i.values, width) if own else i for i, own in zip(index, batched, strict=True)]
    return Place((rows, *turned), 0, width, before if adjacent and before else None)


def _maps(array: BatchedArray, index: Any) -> bool:
    """Whether an index has a value for each example of the array's own vmap."""
    return type(index) is BatchedArray and index.level is array.level


def _expanded(index: Any, ndim: int) -> Index:
    """The index with its ellipsis written out."""
    index = index if isinstance(index, tuple) else (index,)
    used = sum(
        i.ndim if hasattr(i, "dtype") and i.dtype.kind == "b" else i is not None and i is not ...
        for i in index
    )
    for k, i in enumerate(index):
        if i is ...:
            return (*index[:k], *(slice(None),) * (ndim - used), *index[k + 1 :])
    return index


def getitem(array: BatchedArray, index: Any) -> Array:
    """`array[index]` for every example."""
    place = whole_index(array, index if isinstance(index, tuple) else (index,))
    backend = owner(array.values)
    result = backend.wrap(array.values[place.index])
    xp = backend.xp
    if place.hidden:
        result = xp.moveaxis(result, place.hidden, 0)
    elif place.at is not None:
        result = xp.moveaxis(
            result, range(1, place.width + 1), range(place.at + 1, place.at + place.width + 1)
        )
    return array.backend.made(result)


def placed(array: BatchedArray, place: Place, value: Any) -> Any:
    """A logical value in the arrangement that `values[place.index] = ...` wants."""
    if not hasattr(value, "dtype"):
        return value
    backend = owner(array.values)
    if not (type(value) is BatchedArray and value.level is array.level):
        if not (place.hidden or place.at is not None):
            return value
        value = array.level.lift(value)
    values = value.values
    template = array.values[place.index]
    ndim = template.ndim - 1
    values = padded(values, ndim)
    if place.hidden:
        values = backend.xp.moveaxis(values, 0, place.hidden)
    elif place.at is not None:
        values = backend.xp.moveaxis(
            values, range(place.at + 1, place.at + place.width + 1), range(1, place.width + 1)
        )
    return values


def setitem(array: BatchedArray, index: Any, value: Any) -> None:
    """`array[index] = value` for every example."""
    place = whole_index(array, index if isinstance(index, tuple) else (index,))
    array.values[place.index] = placed(array, place, value)
