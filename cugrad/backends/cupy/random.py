"""Random numbers on CUDA: Philox streams whose whole state is a seed and a position, on the
host.
"""

from __future__ import annotations

import struct
import threading
from functools import cache
from math import prod
from typing import Any

import cupy
import numpy as np

from .capture import capturing
from .kernels import philox

__all__ = ["CudaRng"]

Array = Any  # cupy.ndarray

THREADS = 256
MAX_BLOCKS = 4096  # the kernels stride over what one launch does not cover
MASK = 2**64 - 1

# The bits of a float32 draw that a narrower float holds exactly, so that rounding never reaches
# 1.0.
MANTISSA = {"float16": 11, "bfloat16": 8}


@cache
def _module() -> Any:
    return cupy.RawModule(code=philox.SOURCE)  # compiled once a device, at the first call


@cache
def _kernel(name: str) -> Any:
    return _module().get_function(name)


class CudaRng:
    """A random stream: the numbers depend on the seed and on how many were drawn, not on the
    launch.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._offset = 0
        self._lock = threading.Lock()  # two threads must not draw the same numbers

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Uniform in [0, 1)."""
        if dtype == np.float64:
            return self._fill("philox_uniform_double", shape, np.float64, 2)
        bits = np.int32(MANTISSA.get(dtype.name, 24))
        drawn = self._fill("philox_uniform_float", shape, np.float32, 4, bits)
        return drawn.astype(dtype, copy=False)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Normal with mean 0 and variance 1."""
        if dtype == np.float64:
            return self._fill("philox_normal_double", shape, np.float64, 2)
        return self._fill("philox_normal_float", shape, np.float32, 4).astype(dtype, copy=False)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Uniform in [low, high), with a bias below (high - low) / 2^64."""
        if not low < high:
            raise ValueError(f"integers: got low={low}, high={high}, want low < high")
        if low < -(2**63) or high > 2**63:
            raise ValueError(f"integers: got low={low}, high={high}, want bounds that int64 holds")
        span = np.uint64((high - low) & MASK)  # 2^64 values are written as 0
        drawn = self._fill("philox_integers", shape, np.int64, 2, np.int64(low), span)
        return drawn.astype(dtype, copy=False)

    def bits(self, p: float, shape: tuple[int, ...]) -> Array:
        """Eight to a byte, flat: whether the numbers that `uniform` would draw are below p."""
        count = prod(shape)
        out = cupy.empty(-(-count // 8), np.uint8)
        if count:
            extra = np.uint64(count), np.float32(p)
            self._launch("philox_bits", out, out.size, -(-count // 4), *extra)
        return out

    def permutation(self, n: int, dtype: np.dtype[Any]) -> Array:
        """The numbers 0 to n-1 in random order: those that sort n random 64-bit keys."""
        keys = self._fill("philox_integers", (n,), np.int64, 2, np.int64(0), np.uint64(0))
        return cupy.argsort(keys).astype(dtype, copy=False)

    def poisson(self, rate: Array) -> Array:
        """Poisson counts in int64, from CuPy's generator, seeded from this stream."""
        return self._fork().poisson(rate, rate.shape)

    def binomial(self, count: Array, chance: Array) -> Array:
        """Successes in `count` trials in int64, from CuPy's generator, seeded from this stream."""
        shape = np.broadcast_shapes(count.shape, chance.shape)
        return self._fork().binomial(count, chance, shape)

    def _fork(self) -> Any:
        """CuPy's generator of a seed that depends on where this stream stands.

        Philox: the 256,000 states of XORWOW, each far along its sequence, take milliseconds.
        """
        if capturing.now is not None:
            raise RuntimeError(
                "poisson and binomial cannot be captured in a CUDA graph: their generator is made "
                "on the host; draw before the capture"
            )
        with self._lock:
            self._offset = (self._offset + 1) & MASK
            seed = (self.seed * 0x9E3779B97F4A7C15 + self._offset) & MASK
        return cupy.random.Generator(cupy.random.Philox4x3210(seed))

    def restart(self, seed: int) -> None:
        """Begins anew, with another seed."""
        with self._lock:
            self.seed, self._offset = seed, 0

    def get_state(self) -> np.ndarray[Any, Any]:
        """16 bytes: the seed and the position, little-endian. RuntimeError in a capture."""
        if capturing.now is not None:
            raise RuntimeError(
                "the state of random numbers cannot be captured in a CUDA graph, whose replays go "
                "on from one to the next: so a checkpoint cannot draw them again; give it "
                "preserve_rng_state=False, or leave it out"
            )
        return np.frombuffer(struct.pack("<QQ", self.seed & MASK, self._offset), np.uint8).copy()

    def set_state(self, state: np.ndarray[Any, Any]) -> None:
        """Goes to a state of get_state(); RuntimeError for anything of another size."""
        data = np.ascontiguousarray(state, np.uint8)
        if data.size != 16:
            raise RuntimeError(
                f"RNG state of a CUDA device is wrong size: got {data.size} bytes, want 16; "
                "the states of different kinds of device cannot be exchanged"
            )
        with self._lock:
            self.seed, self._offset = struct.unpack("<QQ", data.tobytes())

    def _fill(
        self, name: str, shape: tuple[int, ...], dtype: Any, per_block: int, *extra: np.generic
    ) -> Array:
        """A new array filled by a kernel that makes `per_block` elements of each Philox block."""
        out = cupy.empty(shape, dtype)
        size = prod(shape)
        if size == 0:
            return out
        self._launch(name, out, size, -(-size // per_block), *extra)
        return out

    def _launch(
        self, name: str, out: Array, size: int, blocks: int, *extra: np.generic
    ) -> None:  # fmt: skip
        """Starts a kernel that writes `size` elements and draws so many Philox blocks."""
        place = 0
        if capturing.now is not None:
            start, place = capturing.now.drawn(self, blocks)
        else:
            start = self._taken(blocks)
        grid = min(-(-blocks // THREADS), MAX_BLOCKS)
        arguments = (out, np.uint64(size), np.uint64(self.seed & MASK), np.uint64(start),
                     np.uint64(place), *extra)  # fmt: skip
        _kernel(name)((grid,), (THREADS,), arguments)

    def _taken(self, blocks: int) -> int:
        """Where the next blocks begin, which are then drawn."""
        with self._lock:
            start = self._offset
            self._offset = (start + blocks) & MASK
        return start

    def place(self, at: Array, blocks: int) -> None:
        """Writes to the device where the next blocks begin, for the kernels of a graph."""
        where = np.uint64(self.seed & MASK), np.uint64(self._taken(blocks))
        _kernel("philox_place")((1,), (1,), (at, *where))
