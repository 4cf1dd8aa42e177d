"""Makes tensors of the samples of a batch: `default_collate`, `default_convert`, their table."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from .... import dtypes
from ....device import default_device
from ....functions import FUNCTIONS
from ....functions.creation.factories import as_tensor, tensor
from ....tensor import Tensor

__all__ = [
    "collate", "collate_float_fn", "collate_int_fn", "collate_numpy_array_fn",
    "collate_numpy_scalar_fn", "collate_str_fn", "collate_tensor_fn", "default_collate",
    "default_collate_err_msg_format", "default_collate_fn_map", "default_convert",
    "np_str_obj_array_pattern",
]  # fmt: skip

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # of dtypes that no tensor has
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)
Table = dict[Any, Callable[..., Any]]  # type, or tuple of types -> what collates a batch of it


def rebuilt_mapping(data: Any, values: dict[Any, Any]) -> Any:
    """A mapping like `data` with these values; a dict, if its class cannot be filled so."""
    try:
        if isinstance(data, MutableMapping):  # it may have more than its items
            clone: Any = copy.copy(data)
            clone.update(values)
            return clone
        return type(data)(values)
    except TypeError:
        return dict(values)


def rebuilt_sequence(data: Any, values: list[Any]) -> Any:
    """A sequence like `data` with these values; a list, if its class cannot be filled so."""
    try:
        if isinstance(data, MutableSequence):
            clone: Any = copy.copy(data)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(data)(values)
    except TypeError:
        return list(values)


def default_convert(data: Any) -> Any:
    """`data` with each array of NumPy's in it as a tensor: in mappings, sequences, named tuples.

    What else there is stays as it is, arrays of strings and objects too.

    >>> import numpy as np
    >>> from cugrad.utils.data import default_convert
    >>> default_convert({"a": np.array([0, 1]), "b": 2})
    {'a': tensor([0, 1]), 'b': 2}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)) and not isinstance(data, np.str_):
        if isinstance(data, np.ndarray) and np_str_obj_array_pattern.search(data.dtype.str):
            return data
        return as_tensor(data)
    if isinstance(data, Mapping):
        return rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple):
        values = [default_convert(value) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else values
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return rebuilt_sequence(data, [default_convert(value) for value in data])
    return data


def collate(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """One value of a list of samples, by the type of the first.

    `collate_fn_map` has a function for each type: called with the samples and itself, as
    `collate_fn_map=`. Mappings, named tuples and sequences that it lacks are collated element by
    element. RuntimeError for sequences of different lengths, TypeError for what is none of these.

    >>> from cugrad.utils.data._utils.collate import collate
    >>> collate([(1, "a"), (2, "b")], collate_fn_map={
    ...     int: lambda batch, *, collate_fn_map: sum(batch),
    ...     str: lambda batch, *, collate_fn_map: "".join(batch)})
    [3, 'ab']
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        function = collate_fn_map.get(kind)
        if function is None:
            kinds = [each for each in collate_fn_map if isinstance(first, each)]
            function = collate_fn_map[kinds[0]] if kinds else None
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        values = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
            for key in first
        }
        return rebuilt_mapping(first, values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        columns = zip(*batch, strict=False)
        return kind(*[collate(column, collate_fn_map=collate_fn_map) for column in columns])
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = zip(*batch, strict=False)
        collated = [collate(column, collate_fn_map=collate_fn_map) for column in columns]
        return collated if isinstance(first, tuple) else rebuilt_sequence(first, collated)
    raise TypeError(default_collate_err_msg_format.format(kind))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """Tensors of one shape, stacked along a new first dimension."""
    return FUNCTIONS["stack"](batch, 0)  # which a subclass may answer


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """Arrays, as what their tensors are collated to; TypeError for strings and objects."""
    if np_str_obj_array_pattern.search(batch[0].dtype.str):
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    host = [as_tensor(array, device="cpu") for array in batch]
    collated = collate(host, collate_fn_map=collate_fn_map)
    if isinstance(collated, Tensor):  # one move for all of them
        return collated.to(default_device())
    return collated


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """NumPy's numbers as a tensor of their dtype."""
    return as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """Floats as a float64 tensor."""
    return tensor(batch, dtype=dtypes.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """Ints, or bools, as a tensor."""
    return tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Table | None = None) -> Any:
    """Strings, or bytes, as they are."""
    return batch


default_collate_fn_map: Table = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """The samples of a batch as tensors with one more dimension, in the form that a sample has.

    Tensors, NumPy's arrays and numbers become tensors, and so do the values of mappings, named
    tuples and sequences of these; a tuple becomes a list, strings and bytes are listed. New tensors
    are on the default device; in worker processes that is the CPU. RuntimeError for sequences or
    tensors that differ in size, TypeError for samples of another type.

    >>> from cugrad.utils.data import default_collate
    >>> default_collate([{"A": 0, "B": "x"}, {"A": 100, "B": "y"}])
    {'A': tensor([  0, 100]), 'B': ['x', 'y']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def stacks_tensors(collate_fn: Any) -> bool:
    """Whether it is `default_collate`, and programs have not said how to collate tensors."""
    plain = default_collate_fn_map.get(Tensor) is collate_tensor_fn
    return plain and collate_fn is default_collate and tuple not in default_collate_fn_map
