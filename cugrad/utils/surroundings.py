"""The surroundings of a checkpointed function, such as random states, for its second run."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ..autograd.autocast import casting
from ..autograd.transforms import noting, opened_again, running
from ..backends.batched.arrays import BatchLevel
from ..device import default_device
from ..device import device as Device
from ..functions.creation.random import default_generators
from ..ops.random import drawn_again, noted
from ..runtime.dispatching import OpByOp
from ..tensor import Tensor

__all__ = ["DefaultDeviceType", "Surroundings", "get_device_states", "set_device_states",
           "tensors_in"]  # fmt: skip


def tensors_in(values: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from tensors_in(value)


def devices_of(values: Any) -> list[Device]:
    """The devices that tensors among the values are on, each once; not the host."""
    devices: dict[str, Device] = {}
    for tensor in tensors_in(values):
        if type(tensor._array) is not np.ndarray:
            device = tensor.device
            if device.type != "cpu":
                devices[str(device)] = device
    return list(devices.values())


class Surroundings:
    """The surroundings of a function when it ran: the default device, the settings of autocast, the
    transforms around it, the levels of its own vmaps, whether a mode saw each op, and, if
    `with_random`, the states of all generators that it drew from.
    """

    __slots__ = ("_device", "_book", "_transforms", "_levels", "_casts", "_ops")

    def __init__(self, with_random: bool) -> None:
        self._device, self._casts = default_device(), casting()
        self._book: dict[Any, Any] | None = {} if with_random else None
        self._transforms, self._levels = running.transforms, list[BatchLevel]()
        self._ops = OpByOp()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """The context for the function's first run."""
        with noting(self._levels), nullcontext() if self._book is None else noted(self._book):
            yield

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within it this thread has the noted surroundings, and draws the same random numbers. The
        generators themselves do not move.
        """
        # a new object, because a device remembers where it was entered
        opened = opened_again(self._levels, self._transforms)
        with self._casts, Device(self._device), self._ops, opened:
            if self._book is not None:
                with drawn_again(self._book):
                    yield
            else:
                yield


class DefaultDeviceType:
    """The type of device whose generators are meant when no tensor names one.

    >>> DefaultDeviceType.set_device_type("simulated")
    >>> DefaultDeviceType.get_device_type()
    'simulated'
    >>> DefaultDeviceType.set_device_type("cpu")
    """

    _default_device_type: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Makes this the default type."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """The type that was set; else "cuda" where there is a GPU, else "cpu"."""
        if not DefaultDeviceType._default_device_type:
            from ..cuda import is_available

            DefaultDeviceType._default_device_type = "cuda" if is_available() else "cpu"
        return DefaultDeviceType._default_device_type


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The indices of the devices that tensors among `args` are on, and their generators' states.

    Of one type of device, cuda where there are several, with a warning.

    >>> import cugrad as torch
    >>> x = torch.ones(2, device="simulated")
    >>> ids, states = get_device_states(x, [x, {"y": torch.ones(2, device="cpu")}])
    >>> ids, states[0].dtype
    ([0], torch.uint8)
    """
    devices = devices_of(args)
    types = {device.type: None for device in devices}
    if len(types) > 1:
        first = devices[0].type
        warnings.warn(
            "Tensor arguments, excluding CPU tensors, are detected on at least two types of "
            "devices. Device state will only be saved for devices of a single device type, and the "
            "remaining devices will be ignored. Consequently, if any checkpointed functions "
            "involve randomness, this may result in incorrect gradients. (Note that if CUDA "
            "devices are among the devices detected, it will be prioritized; otherwise, the first "
            f"device encountered will be selected.)\nDevice types: {sorted(types)} first device "
            f"type: {first}",
            stacklevel=2,
        )
        only = "cuda" if "cuda" in types else first
        devices = [device for device in devices if device.type == only]
    generators = default_generators(devices)[1:]
    ids = [generator.device.index or 0 for generator in generators]
    return ids, [generator.get_state() for generator in generators]


def set_device_states(
    devices: Iterable[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Puts the generators of devices into states that `get_device_states` returned.

    Args:
        devices: indices of devices.
        states: a state for each.
        device_type: whose indices they are; None: what `DefaultDeviceType` says.
    """
    if device_type is None:
        device_type = DefaultDeviceType.get_device_type()
    for index, state in zip(devices, states, strict=False):
        default_generators([Device(device_type, index)])[1].set_state(state)
