"""Page-locks the tensors of a batch, for copies to a device that the host does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....tensor import Tensor
from .collate import rebuilt_mapping, rebuilt_sequence

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with each tensor in it in page-locked memory: in mappings and sequences too.

    An object with a method `pin_memory` is what that returns; a tensor on a GPU stays there.
    """
    if isinstance(data, Tensor) and data.is_cuda:
        return data
    if isinstance(data, Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    return with_values(data, pin_memory)


def with_values(data: Any, function: Callable[[Any], Any]) -> Any:
    """A mapping, or a sequence, with `function` of each value; else, and strings, as it is."""
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return rebuilt_mapping(data, {key: function(value) for key, value in data.items()})
    if isinstance(data, tuple):
        values = [function(value) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else type(data)(values)
    if isinstance(data, Sequence):
        return rebuilt_sequence(data, [function(value) for value in data])
    return data
