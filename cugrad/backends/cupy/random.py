"""Random numbers on CUDA: Philox streams whose whole state is a seed and a position, on the
host.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import cupy
import numpy as np

from ..several import several
from .arrays import form_of, new_array
from .capture import capturing
from .fused.copies import dense
from .fused.draws import Drawing, drawing_of
from .fused.launch import OPTIONS, are_apart
from .kernels import philox

__all__ = ["CudaRng"]

Array = Any  # cupy.ndarray

THREADS = 256
MAX_BLOCKS = 4096  # the kernels stride over what one launch does not cover
MASK = 2**64 - 1

# The bits of a float32 draw that a narrower float holds exactly, so that rounding never reaches
# 1.0.
MANTISSA = {"float16": 11, "bfloat16": 8}

ELEMENTS: dict[str, Any] = {
    "float": np.dtype("float32"), "double": np.dtype("float64"),
    "long long": np.dtype("int64"),
}  # fmt: skip


@cache
def _module() -> Any:
    return cupy.RawModule(code=philox.SOURCE, options=OPTIONS)  # compiled at the first call


@cache
def _kernel(name: str) -> Any:
    return _module().get_function(name)


def _told(law: tuple[Any, ...], dtype: np.dtype[Any]) -> tuple[str, tuple[np.generic, ...]]:
    """The name among `philox.LAWS` of a law in a dtype, and what its kernel is told."""
    name, *bounds = law
    if name == "integers":
        low, high = bounds
        if not low < high:
            raise ValueError(f"integers: got low={low}, high={high}, want low < high")
        if low < -(2**63) or high > 2**63:
            raise ValueError(f"integers: got low={low}, high={high}, want bounds that int64 holds")
        return name, (np.int64(low), np.uint64((high - low) & MASK))  # 2^64 values: written as 0
    if dtype == np.float64:
        return f"{name}_double", ()
    bits = (np.int32(MANTISSA.get(dtype.name, 24)),) if name == "uniform" else ()
    return f"{name}_float", bits


def _element(name: str) -> np.dtype[Any]:
    """The dtype of the numbers of a law of `philox.LAWS`."""
    dtype: np.dtype[Any] = ELEMENTS[philox.LAWS[name].element]
    return dtype


def _away(x: Array) -> bool:
    """Whether an array is on another device than the current one."""
    return bool(several.devices) and x.device.id != cupy.cuda.runtime.getDevice()


def _lies_as_new(
    out: Array, shape: tuple[int, ...], dtype: np.dtype[Any], read: Sequence[Array]
) -> bool:
    """Whether a new array would lie as `out` does, and no other element that is read lies there."""
    if type(out) is not cupy.ndarray or (out.shape, out.dtype) != (shape, dtype) or _away(out):
        return False
    return bool(out.flags.c_contiguous) and all(are_apart(x, out) for x in read)


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
        return self._plain(("uniform",), shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Normal with mean 0 and variance 1."""
        return self._plain(("normal",), shape, dtype)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Uniform in [low, high), with a bias below (high - low) / 2^64."""
        return self._plain(("integers", low, high), shape, dtype)

    def _plain(self, law: tuple[Any, ...], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        name, told = _told(law, dtype)
        out = cupy.empty(shape, _element(name))
        self._fill(_kernel(f"philox_{name}"), out, philox.LAWS[name].per_block, *told)
        return out.astype(dtype, copy=False)

    def made_of(
        self, law: tuple[Any, ...], shape: tuple[int, ...], drawn: np.dtype[Any],
        function: Callable[..., Any] | None, arrays: Sequence[Array], numbers: Sequence[Any],
        dtype: np.dtype[Any], out: Array | None,
    ) -> Array | None:  # fmt: skip
        """In one kernel what `ops.random.drawn` says; None where that cannot be. `out` is written
        to, and answered, where it lies as a new array does, and no other one in its memory.
        """
        if any(type(x) is not cupy.ndarray or x.shape != shape or _away(x) for x in arrays):
            return None
        name, told = _told(law, drawn)
        if function is None and dtype == _element(name):
            drawing: Drawing | None = Drawing(_kernel(f"philox_{name}"), ())
        else:
            kinds = [x.dtype for x in arrays]
            drawing = drawing_of(name, drawn, function, kinds, numbers, dtype)
        if drawing is None:
            return None
        read = [dense(x) for x in arrays]
        if out is None or not _lies_as_new(out, shape, dtype, read):
            out = new_array(form_of(shape, dtype))
        per_block = philox.LAWS[name].per_block
        self._fill(drawing.kernel, out, per_block, *told, *read, *drawing.numbers)
        return out

    def bits(self, p: float, shape: tuple[int, ...]) -> Array:
        """Eight to a byte, flat: whether the numbers that `uniform` would draw are below p."""
        count = prod(shape)
        out = cupy.empty(-(-count // 8), np.uint8)
        if count:
            extra = np.uint64(count), np.float32(p)
            self._launch(_kernel("philox_bits"), out, out.size, -(-count // 4), *extra)
        return out

    def permutation(self, n: int, dtype: np.dtype[Any]) -> Array:
        """The numbers 0 to n-1 in random order: those that sort n random 64-bit keys."""
        keys = self.integers(-(2**63), 2**63, (n,), np.dtype("int64"))
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

    def _fill(self, kernel: Any, out: Array, per_block: int, *told: Any) -> None:
        """Fills an array by a kernel that makes `per_block` elements of each Philox block."""
        if out.size:
            self._launch(kernel, out, out.size, -(-out.size // per_block), *told)

    def _launch(self, kernel: Any, out: Array, size: int, blocks: int, *told: Any) -> None:
        """Starts a kernel that writes `size` elements and draws so many Philox blocks."""
        place = 0
        if capturing.now is not None:
            start, place = capturing.now.drawn(self, blocks)
        else:
            start = self._taken(blocks)
        grid = min(-(-blocks // THREADS), MAX_BLOCKS)
        arguments = (out, np.uint64(size), np.uint64(self.seed & MASK), np.uint64(start),
                     np.uint64(place), *told)  # fmt: skip
        kernel((grid,), (THREADS,), arguments)

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
