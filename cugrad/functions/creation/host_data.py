"""Reads numbers, nested lists and tensors as arrays of NumPy, in PyTorch's dtypes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from numbers import Number
from typing import Any

import numpy as np

from ... import dtypes
from ...backends import backend_of
from ...tensor import Tensor

__all__ = ["cast", "check_range", "host_array"]


def host_array(data: Any, exact: bool = False) -> np.ndarray[Any, Any]:
    """Nested lists, numbers or tensors as a NumPy array, in PyTorch's default dtypes or `exact`.

    In lists, too, what is NumPy's keeps its dtype.
    """
    if isinstance(data, (list, tuple)) and _holds_tensor(data):
        kinds: set[dtypes.dtype] = set()
        data = _to_lists(data, kinds)
        if not exact and kinds:  # tensors keep their dtype, numbers beside them have the usual one
            return cast(np.asarray(data), reduce(dtypes.promote_types, kinds).numpy)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(f"tensor: the nested sequence is ragged: {error}") from None
    if not exact and isinstance(data, (list, tuple)):
        kind = _kind_of_numpys(data)
        if kind is not None:
            return cast(array, kind)
    if isinstance(data, (np.ndarray, np.generic)):
        return array
    if array.dtype.kind == "f" and array.size and not np.abs(array).max() < 2.0**63:
        array = _ints_of(data, array)  # NumPy rounds ints of 64 bits beside smaller ones
    if array.dtype.kind in "OUSMm":
        array = _of_objects(array, exact)
    if exact:
        return array
    if array.dtype.kind == "f" or array.size == 0:
        return cast(array, dtypes.get_default_dtype().numpy)
    if array.dtype.kind == "c":
        return cast(array, dtypes.get_default_dtype().to_complex().numpy)
    if array.dtype.kind in "iu":
        check_range(array, np.dtype(np.int64))
        return array.astype(np.int64)
    return array


def _kind_of_numpys(data: Any) -> np.dtype[Any] | None:
    """The dtype of nested lists in which there is a number, or an array, of NumPy's; else None."""
    types, arrays, rows = set[type](), set[Any](), [data]
    while rows:
        row = rows.pop()
        kinds_here = {*map(type, row)}
        types |= kinds_here
        if kinds_here & {list, tuple}:
            rows += [item for item in row if isinstance(item, (list, tuple))]
        if np.ndarray in kinds_here:
            arrays |= {item.dtype for item in row if isinstance(item, np.ndarray)}
    if not arrays and not any(issubclass(kind, np.generic) for kind in types):
        return None
    try:
        kinds = {_DEFAULTS[t]() if t in _DEFAULTS else dtypes.of(np.dtype(t))
                 for t in types - {list, tuple, np.ndarray}}  # fmt: skip
        kinds |= {dtypes.of(kind) for kind in arrays}
    except TypeError:  # of what is no number
        return None
    return reduce(dtypes.promote_types, kinds).numpy


_DEFAULTS: dict[type, Callable[[], dtypes.dtype]] = {
    bool: lambda: dtypes.bool_, int: lambda: dtypes.int64, float: dtypes.get_default_dtype,
    complex: lambda: dtypes.get_default_dtype().to_complex(),
}  # fmt: skip


def _ints_of(data: Any, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers as Python has them, if they are ints alone; else the array."""
    objects = np.asarray(data, dtype=object)
    return objects if all(type(value) is int for value in objects.flat) else array


def _of_objects(array: np.ndarray[Any, Any], exact: bool) -> np.ndarray[Any, Any]:
    """Numbers of which some are ints of more than 64 bits, as floating point beside others that
    are; an error that says what in an array of Python objects is no number.
    """
    want = "want numbers, nested lists of numbers, or an array"
    for value in array.flat:
        if value is None or isinstance(value, dict):
            raise RuntimeError(
                f"Could not infer dtype of {type(value).__name__}: tensor got one, {want}"
            )
        if not isinstance(value, Number):
            raise TypeError(f"tensor: got a {type(value).__name__.removesuffix('_')}, {want}")
    kinds = [type(value) for value in array.flat]
    if exact and {*kinds} == {int} and 0 <= min(array.flat) <= max(array.flat) < 2**64:
        return array.astype(np.uint64)
    if exact or float in kinds or complex in kinds:
        return array.astype(np.complex128 if complex in kinds else np.float64)
    raise ValueError("Overflow when unpacking long long: tensor got an int that int64 cannot hold")


def check_range(array: np.ndarray[Any, Any], kind: np.dtype[Any]) -> None:
    """Raises as PyTorch does when numbers given in Python do not fit `kind`; -1 fits uint8."""
    if array.dtype.kind == "c" and kind.kind != "c":
        raise TypeError(f"tensor: got a complex number, want a real one for {dtypes.of(kind)}")
    if kind.kind in "iu" and array.dtype.kind in "iuf" and array.size:
        most = np.iinfo(kind).max
        least = 0 if kind.kind == "u" and array.dtype.kind == "f" else -most - (kind.kind == "i")
        low, high = array.min(), array.max()  # nan is neither
        fits = least <= low and high <= most  # as a float64 the most of 64 bits is one more
        if not fits or (array.dtype.kind == "f" and high >= float(most + 1)):
            raise RuntimeError(
                f"value cannot be converted to type {dtypes.of(kind).name} without overflow"
            )


def cast(array: np.ndarray[Any, Any], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A copy in another dtype, where numbers out of its range become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(kind)


def _holds_tensor(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, Tensor)


def _to_lists(data: Any, kinds: set[dtypes.dtype]) -> Any:
    """Nested lists of numbers; adds the dtypes of what is in them to `kinds`."""
    if isinstance(data, Tensor):
        kinds.add(data.dtype)
        return backend_of(data._array).to_host(data._array).tolist()
    if isinstance(data, (list, tuple)):
        return [_to_lists(item, kinds) for item in data]
    kinds.add(dtypes.of(host_array(data).dtype))
    return data
