"""Devices: where a tensor lives, and which device new tensors get."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from .runtime.kept import Switch, of_thread

__all__ = ["device", "default_device", "set_default_device", "get_default_device"]

TYPES = ("cpu", "cuda", "simulated", "meta")
# Others of PyTorch's: a program may name them, but no tensor can live there.
ELSEWHERE = ("fpga", "hpu", "ideep", "ipu", "lazy", "maia", "mkldnn", "mps", "mtia",
             "privateuseone", "ve", "vulkan", "xla", "xpu")  # fmt: skip


class device(Switch):
    """A place for tensors: `device("cpu")`, `device("cuda:1")`, `device("cuda", 1)`.

    As a context manager it is the default device of the block. RuntimeError for an unknown type.

    >>> device("cuda:1").type, device("cuda:1").index
    ('cuda', 1)
    """

    __slots__ = ("type", "index")
    type: str
    index: int | None

    def __init__(self, type: str | device | int, index: int | None = None) -> None:
        if isinstance(type, device):
            name, own_index = type.type, type.index
        elif isinstance(type, int) and not isinstance(type, bool):
            name, own_index = "cuda", type
        elif isinstance(type, str):
            name, own_index = _parse(type)
        else:
            raise TypeError(f"device(): got {type!r}, want a string such as 'cuda:0'")
        if own_index is not None and index is not None:
            raise RuntimeError(f"device(): got {type!r} and the index {index}, want one index")
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        if name not in TYPES and name not in ELSEWHERE:
            raise RuntimeError(
                f"Expected one of {', '.join(TYPES)} device type at start of device string: {name}"
            )
        self.type, self.index = name, index if own_index is None else own_index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (
            ")" if self.index is None else f", index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)

    def as_is(self) -> device | None:
        return _state.default

    def change(self, before: device | None) -> device:
        _state.default = self
        return self

    def put_back(self, before: device | None) -> None:
        _state.default = before


def _parse(text: str) -> tuple[str, int | None]:
    name, colon, number = text.partition(":")
    if colon and not number.isdigit():
        raise RuntimeError(f"Invalid device string: '{text}'; want such as 'cuda:0'")
    return name, int(number) if colon else None


class _DeviceState(threading.local):
    default: device | None = None


_state = of_thread(_DeviceState())
_process_default: device | None = None
check_usable: Callable[[device], None] = lambda d: None  # set by cugrad.backends
cuda_is_usable: Callable[[], bool] = lambda: False  # set by cugrad.backends


def default_device() -> device:
    """The device of new tensors: the one set, else CUGRAD_DEVICE, else cuda if usable, else cpu."""
    return _state.default or _process_default or _first_choice()


def _first_choice() -> device:
    global _process_default
    asked = os.environ.get("CUGRAD_DEVICE", "")
    if asked:
        try:
            chosen = device(asked)
            check_usable(chosen)
        except RuntimeError as error:
            raise RuntimeError(f"CUGRAD_DEVICE={asked}: {error}") from None
    else:
        chosen = device("cuda" if cuda_is_usable() else "cpu")
    _process_default = chosen
    return chosen


def get_default_device() -> device:
    """The device that new tensors are made on when none is named."""
    return default_device()


Device = device  # for functions that have an argument of this name


def set_default_device(device: Device | str | int | None) -> None:
    """Makes new tensors of this thread live on a device; None goes back to the first choice.

    RuntimeError when the device cannot be used, with what is missing.
    """
    if device is None:
        _state.default = None
        return
    chosen = Device(device)
    check_usable(chosen)
    _state.default = chosen
