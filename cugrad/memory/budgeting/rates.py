"""How fast bytes go: over the link, to the disk, through a codec; measured once, by doing it."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from ...backends import Backend
from ..codecs import codec_of
from ..disk.store import DiskStore
from .planning import COMPRESS, DISK, OFFLOAD

__all__ = ["Rates", "rates_of"]

TEST_BYTES = 1 << 24
SMALLEST = 64  # bytes of a copy that takes what any does
IN_A_ROW = 16  # such copies, by which that is timed
CODEC = "bf16"
UNUSED = 1e30  # of what may not be chosen


class Rates:
    """Bytes per second of a device, each way; of `placements` alone."""

    def __init__(self, backend: Backend, nbytes: int, placements: frozenset[str]) -> None:
        self.out = self.back = self.disk_out = self.disk_back = self.codec = UNUSED
        self.copy = 0.0  # seconds that a copy takes at least, however small, one behind another
        if OFFLOAD in placements:
            self.out, self.back = link(backend, nbytes)
            self.copy = smallest(backend)
        if DISK in placements:
            self.disk_out, self.disk_back = disk(nbytes)
        if COMPRESS in placements:
            self.codec = coded(backend, nbytes)


_rates: dict[Any, Rates] = {}


def rates_of(backend: Backend, index: int | None, most: int, placements: frozenset[str]) -> Rates:
    """The rates of a device, measured once, with `most` bytes or fewer.

    Small copies are slow ones; and what is simulated may become another device.
    """
    nbytes = 1 << max(2, min(TEST_BYTES, most).bit_length() - 1)
    key = backend.device_type, index, placements, nbytes, repr(backend.model)
    if key not in _rates:
        with backend.use_device(index), backend.quiet():
            _rates[key] = Rates(backend, nbytes, placements)
    return _rates[key]


def timed(backend: Backend, stream: Any, work: Any) -> float:
    """Seconds that a stream takes for what `work()` puts into it."""
    begin, end = backend.event(timing=True), backend.event(timing=True)
    stream.record_event(begin)
    work()
    stream.record_event(end)
    end.synchronize()
    return max(begin.elapsed_time(end) / 1e3, 1e-9)


def link(backend: Backend, nbytes: int) -> tuple[float, float]:
    """To the host, from page-locked memory, and back; the first copies warm up."""
    stream = backend.stream()
    device = backend.xp.zeros(nbytes, "uint8")
    host = backend.empty_pinned((nbytes,), np.dtype("uint8"))
    stream.wait_event(backend.current_stream().record_event())
    for _ in range(2):
        out = timed(backend, stream, lambda: backend.copy_async(host, device, stream))
        back = timed(backend, stream, lambda: backend.copy_async(device, host, stream))
    return nbytes / out, nbytes / back


def smallest(backend: Backend) -> float:
    """Seconds of one of many copies to the host in a row, of next to no bytes."""
    stream = backend.stream()
    device = backend.xp.zeros(SMALLEST, "uint8")
    host = backend.empty_pinned((SMALLEST,), np.dtype("uint8"))
    stream.wait_event(backend.current_stream().record_event())

    def copies() -> None:
        for _ in range(IN_A_ROW):
            backend.copy_async(host, device, stream)

    return min([timed(backend, stream, copies) for _ in range(2)]) / IN_A_ROW


def disk(nbytes: int) -> tuple[float, float]:
    """To the disk of scratch files and back."""
    array = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    store = DiskStore()
    try:
        begin = perf_counter()
        span = store.write(array)
        span.synchronize()
        written = perf_counter()
        span.read()
        read = perf_counter()
    finally:
        store.close()
    return nbytes / max(written - begin, 1e-9), nbytes / max(read - written, 1e-9)


def coded(backend: Backend, nbytes: int) -> float:
    """Through a codec, one way, on the device."""
    codec, xp, stream = codec_of(CODEC), backend.xp, backend.current_stream()
    array = xp.ones(nbytes // 4, "float32")
    payload = codec.encode(xp, array)
    codec.decode(xp, payload, array.dtype, array.shape)
    seconds = timed(backend, stream, lambda: codec.encode(xp, array))
    seconds += timed(backend, stream, lambda: codec.decode(xp, payload, array.dtype, array.shape))
    return 2 * nbytes / seconds
