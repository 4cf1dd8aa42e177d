"""Functions of CuPy that run on the device of their arrays, for machines with several."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import cupy

from ..batched.arrays import BatchedArray

__all__ = ["PlacedNamespace", "placed"]

# CuPy launches a kernel on the current device, wherever the arrays are. Where devices reach each
# other's memory that is slow, and the result is on the wrong one; else it is an error.


def _device_of(values: Any) -> int | None:
    """The device of the first array among arguments; None, where there is none."""
    for value in values:
        while type(value) is BatchedArray:
            value = value.values
        if isinstance(value, cupy.ndarray):
            return value.device.id
        if type(value) in (list, tuple):
            device = _device_of(value)
            if device is not None:
                return device
    return None


def _refuse_two(args: tuple[Any, ...]) -> None:
    """RuntimeError for arrays of several devices."""
    values = args[0] if args and type(args[0]) in (list, tuple) else args
    devices = dict.fromkeys(x.device.id for x in values if isinstance(x, cupy.ndarray))
    if len(devices) > 1:
        first, second = list(devices)[:2]
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"cuda:{first} and cuda:{second}!"
        )


def placed(function: Callable[..., Any], strict: bool = False) -> Callable[..., Any]:
    """The function, run on the device of the first array that it is given; `strict`: of all."""
    current = cupy.cuda.runtime.getDevice

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if strict:
            _refuse_two(args)
        device = _device_of(args)
        if device is None or device == current():
            return function(*args, **kwargs)
        with cupy.cuda.Device(device):
            return function(*args, **kwargs)

    return run


class PlacedNamespace:
    """A namespace of placed functions."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._namespace, name)
        if callable(value) and not isinstance(value, type):
            value = placed(value)
        self.__dict__[name] = value  # without this detour from now on
        return value
