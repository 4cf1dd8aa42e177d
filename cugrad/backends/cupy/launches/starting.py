"""Starts kernels of one argument by the driver: what CuPy's RawKernel does at each launch is done
once for a kernel.

That is to find its handle, to look at each argument, and to gather their addresses. Here the
argument is a struct, which is packed where this thread always packs it, so its address is known.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from ....runtime.kept import of_thread
from ...several import several
from ...traced.gathered import MOST_BYTES
from ..arrays import by_value

__all__ = [
    "MOST_BYTES",
    "NotedCall",
    "NewArrays",
    "StructKernel",
    "current_stream",
    "driver_launch",
    "here",
    "made",
    "noted",
    "start",
]

Array = Any  # cupy.ndarray

ndarray, driver_launch = cupy.ndarray, cupy.cuda.driver.launchKernel
current_stream = cupy.cuda.get_current_stream


class _Places(threading.local):
    """Where this thread packs the arguments of kernels: each `place` is memory, and the address of
    a list of one address, that of the memory. The driver has read both when it returns.

    Who starts a kernel takes a place away meanwhile: a signal's handler may start another.
    """

    def __init__(self) -> None:
        self.places: list[tuple[Any, int]] = []
        self._lists: list[Any] = []

    def another(self) -> tuple[Any, int]:
        if not self._lists:  # the runtime makes the device's context this thread's; as in CuPy
            cupy.cuda.runtime.memGetInfo()
        memory = (ctypes.c_char * MOST_BYTES)()
        self._lists.append(ctypes.c_void_p(ctypes.addressof(memory)))
        return memory, ctypes.addressof(self._lists[-1])


class NewArrays(NamedTuple):
    """A function that makes new arrays, which may lie in one piece of memory."""

    make: Callable[[], Sequence[Array]]


class NotedCall(NamedTuple):
    """What was done with arrays: a kernel, its grid, its block and what it is told behind their
    addresses, or a function of these that launches something, or who made the arrays; and those
    among the arrays that it reads and does not write.
    """

    what: Any
    arrays: Sequence[Any]
    read: Sequence[Any] = ()


class _Noted(threading.local):
    """What this thread launches, while a plan of it is made: see `written/plans.py`."""

    calls: list[Any] | None = None  # each a NotedCall, or None: see `not_noted`


here = _Places()
noted = of_thread(_Noted())


class StructKernel:
    """A kernel whose one argument is a struct; compiled when it is first started."""

    __slots__ = ("raw", "handle")

    def __init__(self, text: str, name: str, options: tuple[str, ...] = ()) -> None:
        self.raw = cupy.RawKernel(text, name, options)
        self.handle = 0  # the driver's, once it is compiled

    def __call__(self, grid: Sequence[int], block: Sequence[int], told: bytes) -> None:
        """Starts it on the current stream; `told` is the struct."""
        if several.devices:  # on each it has another handle
            argument = np.frombuffer(told, by_value(len(told)))
            self.raw(tuple(grid), tuple(block), (argument,))
            return
        handle = self.handle or self.compiled()
        places = here.places
        place = places.pop() if places else here.another()
        memory, address = place
        memory[: len(told)] = told
        sizes = *(*grid, 1, 1)[:3], *(*block, 1, 1)[:3]
        driver_launch(handle, *sizes, 0, current_stream().ptr, address, 0)
        places.append(place)

    def compiled(self) -> int:
        """The driver's handle, which there is from now on."""
        self.handle = self.raw.kernel.ptr
        return self.handle


def start(
    kernel: StructKernel, grid: Sequence[int], block: Sequence[int], arrays: Sequence[Array | None],
    head: Any, tail: bytes, read: Sequence[int],
) -> None:  # fmt: skip
    """Starts a kernel whose struct begins with the addresses of arrays, which `head` packs, 0 for
    None, and goes on with `tail`. `read` are the numbers of those that it does not write.
    """
    if noted.calls is not None:
        told = kernel, grid, block, tail
        noted.calls.append(NotedCall(told, arrays, [arrays[k] for k in read]))
    kernel(grid, block, head(*[0 if x is None else x.data.ptr for x in arrays]) + tail)


def call(function: Callable[..., None], *arrays: Array, written: int = 1) -> None:
    """Calls a function of the addresses of arrays that launches what it does, a library's say, and
    writes to so many of the last.
    """
    if noted.calls is not None:
        noted.calls.append(NotedCall(function, arrays, arrays[:-written]))
    function(*[x.data.ptr for x in arrays])


def made(make: Callable[[], Sequence[Array]]) -> Sequence[Array]:
    """The new arrays that a function makes; it will be called again where launches are kept."""
    arrays = make()
    if noted.calls is not None:
        noted.calls.append(NotedCall(NewArrays(make), arrays))
    return arrays


def not_noted() -> None:
    """Says that something is done of which a plan cannot be made by what is noted."""
    if noted.calls is not None:
        noted.calls.append(None)
