"""Memory on CUDA: the peak of what is allocated, and page-locked host arrays of exact size."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import cupy
import numpy as np

from ..lending.pinned import Held
from ..reclaimers import Reclaimers, told
from . import pools

__all__ = ["PeakMeter", "empty_pinned", "is_pinned", "pointer_of"]


OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, of the host's memory too


class PeakMeter:
    """Keeps the highest number of bytes in use, per device.

    Costs nothing until the first reset(). From then on every allocation reads the pools' counters
    (about 0.3 us), through CuPy's process-wide allocator and not a MemoryHook: hooks are
    thread-local, and backward threads allocate too. The maximum of a quantity that only
    allocations raise is attained right after one, so frees need no watching. What other allocators
    give (`cupy.cuda.using_allocator`, as CUDA graphs use) is seen by the next one.
    """

    def __init__(self) -> None:
        self._peaks: dict[int, int] = {}
        self._lock = threading.Lock()
        self._watching = False

    def reset(self) -> None:
        """Forgets the current device's peak and begins again from the bytes in use now."""
        with self._lock:
            if not self._watching:
                wrap_allocator(self._metered)
                self._watching = True
        self._peaks[cupy.cuda.runtime.getDevice()] = pools.bytes_allocated()

    def raise_to(self, nbytes: int) -> None:
        """The current device's peak was that, at least."""
        device = cupy.cuda.runtime.getDevice()
        self._peaks[device] = max(nbytes, self._peaks.get(device, 0))

    def peak(self) -> int:
        """The most bytes in use on the current device since its reset().

        Before the first reset() nothing is watched, and the bytes that the pool holds stand in: an
        upper bound, and the peak itself but for fragments, unless empty_cache() was called.
        """
        device = cupy.cuda.runtime.getDevice()
        peak = self._peaks.get(device)
        return pools.bytes_reserved(device) if peak is None else peak

    def _metered(self, allocate: Callable[[int], Any]) -> Callable[[int], Any]:
        used_bytes, get_device = pools.bytes_allocated, cupy.cuda.runtime.getDevice
        peaks = self._peaks

        def metered(size: int) -> Any:
            memory = allocate(size)
            used, device = used_bytes(), get_device()
            if used > peaks.get(device, used):
                peaks[device] = used
            return memory

        return metered


_reclaimers, settlers = Reclaimers(), Reclaimers()


def retry_after(reclaim: Callable[[], bool]) -> None:
    """Has CuPy's process-wide allocator call `reclaim` where it fails, and try again if that
    answers true.
    """
    _retry_when_full()
    _reclaimers.add(reclaim)


@cache
def _retry_when_full() -> None:
    wrap_allocator(_retrying)
    pools.Retried.now = True


def use_pools() -> None:
    """Has the process's memory come from pools of our own, unless the program has chosen others."""
    wrap_allocator(pools.in_place_of)


@cache
def watch() -> None:
    """Has the allocations of watched devices noted from now on: see pools.watch."""
    wrap_allocator(pools.watching)


def wrap_allocator(wrapped: Callable[[Any], Any]) -> None:
    """Puts `wrapped(allocator)` in the place of the process's allocator.

    In a thread of its own: in a `cupy.cuda.using_allocator`, as programs capture graphs in, a
    thread sees that allocator and may not change the process's.
    """
    failures: list[BaseException] = []

    def change() -> None:
        try:
            cupy.cuda.set_allocator(wrapped(cupy.cuda.get_allocator()))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


# Errors of a device that is full, by their class: CUDA's, the driver's, those of its libraries.
FULL = {
    "CUDARuntimeError": 2, "CUDADriverError": 2, "CUBLASError": 3, "CUSOLVERError": 2,
}  # fmt: skip


def made_room(error: Exception) -> bool:
    """Whether an error says that the device is full, though not to the pool, as where a library
    wants memory for a handle; what the pool keeps without need has then been given up.
    """
    if getattr(error, "status", None) != FULL.get(type(error).__name__, -1):
        return False
    _reclaimers.ask()
    pools.give_up_free_blocks()
    return True


def _retrying(allocate: Callable[[int], Any]) -> Callable[[int], Any]:
    def retrying(size: int) -> Any:
        try:
            return allocate(size)
        except MemoryError as error:  # CuPy's is one; the pool has freed what it could
            if not _reclaimers.ask():
                raise told(error, cupy.ndarray) from None
        try:
            return allocate(size)
        except MemoryError as error:
            raise told(error, cupy.ndarray) from None

    return retrying


def empty_pinned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A host array in page-locked memory of exactly its size, freed with the array's last view;
    MemoryError where the host has no more.

    CuPy's own pinned pool rounds up to a power of two and hands a block out again while a copy may
    still be reading it. This allocation is slow and may synchronise the device: keep the array,
    and keep it alive until the copies that use it have finished.
    """
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    try:
        memory = cupy.cuda.PinnedMemory(size, cupy.cuda.runtime.hostAllocPortable)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status != OUT_OF_MEMORY:
            raise
        raise MemoryError(f"cannot page-lock {size:,} bytes of host memory: {error}") from None
    buffer: Any = cupy.cuda.PinnedMemoryPointer(memory, 0)
    return np.ndarray(shape, dtype, buffer)


def is_pinned(array: np.ndarray[Any, Any]) -> bool:
    """Whether the driver knows a host array's memory as page-locked, from whatever allocator."""
    base: Any = array
    while base is not None:
        if isinstance(base, (cupy.cuda.PinnedMemoryPointer, Held)):
            return True
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if array.size == 0:
        return False
    runtime = cupy.cuda.runtime
    return runtime.pointerGetAttributes(array.ctypes.data).type == runtime.memoryTypeHost


def pointer_of(array: Any) -> int:
    """The address of an array's first element, on the host or on the device."""
    return array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data
