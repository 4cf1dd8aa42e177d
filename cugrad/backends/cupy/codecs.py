"""The codecs of saved tensors as kernels: one pass over an array, where CuPy would need twenty."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from .kernels import codecs

__all__ = ["CodecKernels"]

Array = Any  # cupy.ndarray

THREADS = 256
MAX_BLOCKS = 1 << 16  # the kernels stride over what one launch does not cover


@cache
def _module() -> Any:
    return cupy.RawModule(code=codecs.SOURCE)  # compiled once a device, at the first call


@cache
def _kernel(name: str) -> Any:
    return _module().get_function(f"codec_{name}")


def _launch(name: str, size: int, *args: Any) -> None:
    """A thread for each of `size` elements."""
    if size:
        grid = min(-(-size // THREADS), MAX_BLOCKS)
        _kernel(name)((grid,), (THREADS,), (*args, np.uint64(size)))


class CodecKernels:
    """What `memory/codecs.py` defines for rows of float32, element for element; numbers that are
    denormal in float32 may become zero.
    """

    @staticmethod
    def encode(name: str, flat: Array, length: int, codes: Array, scales: Array | None) -> None:
        """Writes the codes of contiguous float32 elements, and the scale of each row of them."""
        size = flat.size
        if scales is None:
            _launch(f"{name}_encode", size, flat, codes)
            return
        bits = cupy.empty(scales.size * length, np.int32)
        bits[size:] = 0
        _launch("magnitudes", size, flat, bits)
        top = cupy.max(bits.reshape(-1, length), axis=1) if size else bits
        _launch(f"{name}_encode", size, flat, top, codes, scales, np.int32(length))

    @staticmethod
    def decode(
        name: str, codes: Array, scales: Array | None, length: int, largest: float
    ) -> Array:  # fmt: skip
        """What the codes stand for, in float32; `largest` is the most that the dtype holds."""
        if name == "fp16":
            return codes.astype(np.float32)
        values = cupy.empty(codes.size, np.float32)
        if scales is None:
            _launch(f"{name}_decode", codes.size, codes, values)
        else:
            some = np.int32(length), np.float32(largest)
            _launch(f"{name}_decode", codes.size, codes, scales, values, *some)
        return values
