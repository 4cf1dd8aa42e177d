"""The device "meta" as a Backend: tensors with shapes and dtypes, and no values."""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import prod
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from ...runtime.kept import NOTHING
from ..numpy.backend import HOST_STREAM, HostEvent, HostRng, HostStream
from .arrays import NO_DATA, MetaArray, blank
from .namespace import MetaNamespace

__all__ = ["MetaBackend"]

Array = Any


class MetaRng(HostRng):
    """A generator whose numbers have no values."""

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return blank(shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return blank(shape, dtype)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return blank(shape, dtype)

    def bits(self, p: float, shape: tuple[int, ...]) -> Array:
        return blank((-(-prod(shape) // 8),), np.uint8)

    def permutation(self, n: int, dtype: np.dtype[Any]) -> Array:
        return blank((n,), dtype)

    def poisson(self, rate: Array) -> Array:
        return blank(rate.shape, np.int64)

    def binomial(self, count: Array, chance: Array) -> Array:
        return blank(np.broadcast_shapes(count.shape, chance.shape), np.int64)


class MetaBackend:
    """Tensors without memory."""

    name = device_type = "meta"
    readable, runs_rows, makes_kernels, stands_in = True, False, False, False
    keeps_launches = False
    array_types: tuple[type, ...] = (MetaArray,)
    attention: Any = None  # by rows
    grid_sample: Any = None
    ctc_loss: Any = None
    model: Any = None
    host_seconds = staticmethod(perf_counter)

    def __init__(self) -> None:
        self.xp: Any = MetaNamespace()

    def wrap(self, value: Any) -> Array:
        return self.xp.asarray(value) if isinstance(value, np.generic) else value

    def asarray(self, value: Any, dtype: np.dtype[Any] | None = None) -> Array:
        """An array of the shape and the dtype of `value`, whose values are left behind."""
        return self.xp.asarray(value, dtype)

    def to_host(self, array: Array) -> NoReturn:
        """NotImplementedError: there are no values."""
        raise NotImplementedError(
            f"{NO_DATA} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when "
            "moving module from meta to a different device."
        )

    def device_index(self, array: Array) -> int | None:
        return None

    def holder_of(self, array: Array) -> Any:
        """Nothing: no pool has its memory."""
        return None

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int | None:
        return None

    def use_device(self, index: int | None) -> AbstractContextManager[Any]:
        return NOTHING

    def stream(self, priority: int = 0) -> HostStream:
        return HostStream()

    def current_stream(self) -> HostStream:
        return HOST_STREAM

    def use_stream(self, stream: HostStream) -> AbstractContextManager[Any]:
        return NOTHING

    def event(self, timing: bool = False) -> HostEvent:
        return HostEvent()

    def empty_pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def is_pinned(self, array: Array) -> bool:
        return False

    def copy_async(self, dst: Array, src: Array, stream: HostStream) -> None:
        """There is nothing to copy."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def memory_allocated(self) -> int:
        """0: that is the point."""
        return 0

    max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated
    watched_peak = memory_allocated

    def reset_peak_memory_stats(self) -> None:
        """There is no peak."""

    watch_peak = reset_peak_memory_stats

    def raise_watched_peak(self, nbytes: int) -> None:
        """There is no peak."""

    def empty_cache(self) -> None:
        """There is nothing to give back."""

    def on_out_of_memory(self, reclaim: Any) -> None:
        """It is never full."""

    def on_count(self, settle: Any) -> None:
        """There is nothing to count."""

    def made_room(self, error: Exception) -> bool:
        return False

    def quiet(self) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")

    def rng(self, seed: int) -> MetaRng:
        return MetaRng(seed)

    def capture(self, pool: Any, handle: tuple[int, int]) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError("cuda graph: the meta device has no CUDA graphs")
