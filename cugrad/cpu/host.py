"""The host's one device, its streams, which are always idle, and what its processor can do."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from ..runtime.kept import Switch

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count",
    "empty_cache", "get_capabilities", "is_available", "is_initialized", "set_device", "stream",
    "synchronize",
]  # fmt: skip

# NumPy's names of what a processor can do, where PyTorch's are not the same in small letters.
NAMES = {
    "SSE41": "sse4_1", "SSE42": "sse4_2", "AVX512F": "avx512_f", "AVX512CD": "avx512_cd",
    "AVX512DQ": "avx512_dq", "AVX512BW": "avx512_bw", "AVX512VL": "avx512_vl",
    "AVX512IFMA": "avx512_ifma", "AVX512VBMI": "avx512_vbmi", "AVX512VBMI2": "avx512_vbmi2",
    "AVX512BITALG": "avx512_bitalg", "AVX512VPOPCNTDQ": "avx512_vpopcntdq",
    "AVX512VNNI": "avx512_vnni", "AVX512FP16": "avx512_fp16", "ASIMDDP": "dot",
    "ASIMDHP": "fp16_arith", "ASIMDFHM": "fhm",
}  # fmt: skip


class Stream:
    """A stream of the host: what is queued there has run."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Returns at once."""

    def wait_event(self, event: Any) -> None:
        """Returns at once."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        return Event() if event is None else event

    def synchronize(self) -> None:
        """Returns at once."""


class Event:
    """An event of the host, which has happened."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        """Returns at once."""

    wait = record

    def synchronize(self) -> None:
        """Returns at once."""


_streams: list[Stream] = [Stream()]  # the innermost last


class StreamContext(Switch):
    """A context in which a stream is the current one; with None nothing changes.

    >>> import cugrad as torch
    >>> side = torch.cpu.Stream()
    >>> with torch.cpu.stream(side):
    ...     torch.cpu.current_stream() is side
    True
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def as_is(self) -> Any:
        return [*_streams]

    def change(self, before: Any) -> None:
        if self.stream is not None:
            _streams.append(self.stream)

    def put_back(self, before: Any) -> None:
        _streams[:] = before


def stream(stream: Stream | None) -> StreamContext:
    """A `StreamContext`."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The stream that a `StreamContext` has made the current one, or the host's own."""
    return _streams[-1]


def is_available() -> bool:
    """True."""
    return True


is_initialized = is_available


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """The string "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is one device; RuntimeError for one that is not the host's.

    >>> import cugrad as torch
    >>> torch.cpu.set_device("cpu")
    """
    if str(getattr(device, "type", device)).partition(":")[0] not in ("cpu", "0"):
        raise RuntimeError(f"torch.cpu.set_device: got {device}, want the one device 'cpu'")


def synchronize(device: Any = None) -> None:
    """The host has always just finished."""


def empty_cache() -> None:
    """Nothing is kept."""


@cache
def get_capabilities() -> Mapping[str, Any]:
    """What the processor can do, as NumPy finds out: a mapping of names to bools.

    `architecture` is the name of its family.

    >>> import cugrad as torch
    >>> sorted(torch.cpu.get_capabilities())[0]
    'architecture'
    """
    features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    able = {NAMES.get(name, name.lower()): has for name, has in features.items() if "_" not in name}
    return MappingProxyType({"architecture": platform.machine(), **able})
