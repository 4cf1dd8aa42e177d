"""Chooses the backend of an array or of a device.

`protocol.py` is the whole seam between cugrad and a device: begin there. `numpy`, `cupy` and
`simulated` stand behind it, and `batched` for vmap. Rooms above import `backend_of` and `get` from
here, and ask a backend for what the protocol says, not for its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import device as _device
from ..device import device
from ..runtime.absent import explain
from .batched.arrays import BatchedArray
from .numpy.backend import NumpyBackend
from .protocol import Backend

__all__ = [
    "BY_ARRAY_TYPE", "Backend", "backend_of", "get", "is_simulated", "is_usable",
    "started", "why_unusable",
]  # fmt: skip

_by_device_type: dict[str, Any] = {"cpu": NumpyBackend()}
BY_ARRAY_TYPE: dict[type, Backend] = {}  # of arrays
_by_other_type: dict[type, Backend] = {}  # of NumPy's scalars, and of subclasses, once met
_listeners: list[Callable[[Backend], None]] = []


def on_register(listener: Callable[[Backend], None]) -> None:
    """Calls `listener(backend)` for every backend that exists and that comes later."""
    for backend in list(_by_device_type.values()):
        listener(backend)
    _listeners.append(listener)


def _register(backend: Backend) -> None:
    _by_device_type[backend.device_type] = backend
    for array_type in backend.array_types:
        BY_ARRAY_TYPE[array_type] = backend
    for listener in _listeners:
        listener(backend)


_register(_by_device_type["cpu"])


def backend_of(array: Any) -> Backend:
    """The backend whose array `array` is; TypeError for anything else."""
    owner = BY_ARRAY_TYPE.get(type(array)) or _by_other_type.get(type(array))
    if owner is None:
        if type(array) is BatchedArray:
            return array.backend
        for backend in list(_by_device_type.values()):  # another thread may start one
            if isinstance(array, backend.array_types):
                _by_other_type[type(array)] = backend
                return backend
        raise TypeError(f"want an array of a cugrad backend, got {type(array).__name__}")
    return owner


def get(device_type: str) -> Backend:
    """The backend of a device type; RuntimeError that says what is missing if it cannot be used."""
    backend = _by_device_type.get(device_type)
    if backend is None:
        reason = why_unusable(device_type)
        if reason is not None:
            raise RuntimeError(f"device '{device_type}' cannot be used: {reason}")
        backend = _made(device_type)
        _register(backend)
    return backend


def _made(device_type: str) -> Any:
    if is_simulated(device_type):
        from . import simulated

        is_cuda = device_type == "cuda"
        return simulated.as_cuda() if is_cuda else simulated.SimulatedBackend()
    if device_type == "meta":
        from .meta.backend import MetaBackend

        return MetaBackend()
    from .cupy.backend import CupyBackend

    return CupyBackend()


def is_simulated(device_type: str) -> bool:
    """Whether the simulated device is what a device type means here."""
    asked = os.environ.get("CUGRAD_SIMULATE_CUDA", "") not in ("", "0")
    return device_type == "simulated" or (device_type == "cuda" and asked)


def started() -> list[Backend]:
    """The backends in use so far: the host's, and those of devices that were asked for."""
    return list(_by_device_type.values())


def why_unusable(device_type: str) -> str | None:
    """One sentence that says why a device type cannot be used here, or None. Never raises."""
    if device_type in _by_device_type or device_type == "meta" or is_simulated(device_type):
        return None
    if device_type in _device.ELSEWHERE:
        return f"the devices are {', '.join(_device.TYPES)}"
    from .cupy.probe import why_unusable as why

    return why()


def is_usable(device_type: str) -> bool:
    """Whether tensors can live on a device type here. Never raises."""
    return why_unusable(device_type) is None


def runtime_version() -> str | None:
    """The version of CUDA's runtime, such as "12.8"; None where a simulated device is "cuda"."""
    if is_simulated("cuda"):
        return None
    from .cupy.probe import runtime_version as version

    return version()


def _check_usable(place: device) -> None:
    backend = get(place.type)
    count = backend.device_count()
    if place.index is not None and place.index >= count and place.type != "cpu":
        raise RuntimeError(
            f"device '{place}' cannot be used: invalid device ordinal, this machine has {count}"
        )


_device.check_usable = _check_usable
_device.cuda_is_usable = lambda: is_usable("cuda")


explain(__name__)
