"""Inputs cut into pieces, one for each device, and outputs put together again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ...device import device as Device
from ...functions import FUNCTIONS
from ...tensor import Tensor

__all__ = ["device_of", "gather", "scatter", "scatter_kwargs"]


def device_of(place: Any) -> Device:
    """A device by its number as a GPU, its name, or itself; -1 is the CPU."""
    if isinstance(place, int):
        return Device("cpu") if place == -1 else Device("cuda", place)
    return Device(place)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """One piece of `inputs` for each device, each on its device.

    Tensors, also in tuples, lists and dicts, are cut into about equal chunks along `dim`: there
    may be fewer chunks than devices. Anything else is in every piece as it is.
    """
    if isinstance(inputs, Tensor):
        chunks = FUNCTIONS["chunk"](inputs, len(target_gpus), dim)
        return tuple([c.to(device_of(d)) for c, d in zip(chunks, target_gpus)])
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return [type(inputs)(*parts) for parts in _columns(inputs, target_gpus, dim)]
    if isinstance(inputs, tuple) and inputs:
        return list(_columns(inputs, target_gpus, dim))
    if isinstance(inputs, list) and inputs:
        return [list(parts) for parts in _columns(inputs, target_gpus, dim)]
    if isinstance(inputs, dict) and inputs:
        kind: Any = type(inputs)
        return [kind(parts) for parts in _columns(list(inputs.items()), target_gpus, dim)]
    return [inputs for _ in target_gpus]


def _columns(inputs: Any, target_gpus: Sequence[Any], dim: int) -> Any:
    return zip(*[scatter(part, target_gpus, dim) for part in inputs])


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any],
    dim: int = 0,
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:  # fmt: skip
    """`scatter` for positional arguments and those by name, as many pieces of either."""
    pieces = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    pieces += [()] * (len(named) - len(pieces))
    named += [{} for _ in range(len(pieces) - len(named))]
    return tuple(pieces), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The outputs of all devices as one, on `target_device`: tensors are joined along `dim`.

    Outputs that are scalars become a vector, with a warning.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        parts = [x.to(device_of(target_device)) for x in outputs]
        if dim == 0 and all(x.ndim == 0 for x in parts):
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; will "
                "instead unsqueeze and return a vector.",
                stacklevel=2,
            )
            parts = [x.reshape(1) for x in parts]
        return FUNCTIONS["cat"](parts, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(other) for other in outputs):
            raise ValueError("All dicts must have the same number of keys")
        kind: Any = type(first)
        return kind([(k, gather([out[k] for out in outputs], target_device, dim)) for k in first])
    rows = [gather(row, target_device, dim) for row in zip(*outputs, strict=True)]
    return type(first)._make(rows) if hasattr(first, "_fields") else type(first)(rows)
