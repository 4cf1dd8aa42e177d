"""cuBLAS's products while a graph is captured, by ctypes: CuPy refuses to call cuBLAS then.

cuBLAS can be captured. What it works in meanwhile is told to it, and belongs to the graph's pool:
its own is every other product's too, and a graph may be replayed beside those.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

import cupy

from ..capture import capturing

__all__ = ["Cublas", "captured_product", "library"]

MATRIX = [c_void_p, c_int, c_int]  # where it lies, its cudaDataType_t, its leading dimension
SEVERAL = [*MATRIX, c_int64]  # and from one to the next
# cublas_api.h: a handle, op(A), op(B), m, n, k, alpha, A, B, beta, C, and for several how many; a
# cublasComputeType_t, a cublasGemmAlgo_t
SIGNATURES: dict[str, list[Any]] = {
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, c_size_t],
    "cublasGemmEx": [
        c_void_p, *[c_int] * 5, c_void_p, *MATRIX, *MATRIX, c_void_p, *MATRIX, c_int, c_int,
    ],
    "cublasGemmStridedBatchedEx": [
        c_void_p, *[c_int] * 5, c_void_p, *SEVERAL, *SEVERAL, c_void_p, *SEVERAL,
        c_int, c_int, c_int,
    ],
}  # fmt: skip

# Bytes to work in: as PyTorch, what cuBLAS recommends; 32 MiB for Hopper and later.
WORKSPACE = {True: 32 << 20, False: 8320 << 10}


class Cublas:
    """The functions, with errors as CuPy's exceptions; made of what ctypes has loaded."""

    def __init__(self, loaded: Any) -> None:
        self._functions: dict[str, Any] = {}
        for name, signature in SIGNATURES.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = signature, c_int
            self._functions[name] = function

    def call(self, name: str, *args: Any) -> None:
        status = self._functions[name](*args)
        if status:
            from cupy_backends.cuda.libs import cublas

            raise cublas.CUBLASError(status)


@cache
def library() -> Cublas:
    """The library that CuPy has loaded; OSError where it lies under another name."""
    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return Cublas(ctypes.CDLL(f"libcublas.so.{major}"))


def captured_product(name: str, handle: int, *told: Any) -> None:
    """Calls the product `name` of cuBLAS on the current stream, which is being captured."""
    loaded, stream = library(), cupy.cuda.get_current_stream().ptr
    loaded.call("cublasSetStream_v2", handle, stream)  # this, and each other one, ends the use of
    try:
        place, size = _workspace(stream)
        loaded.call("cublasSetWorkspace_v2", handle, place.ptr, size)
        loaded.call(name, handle, *told)
    finally:
        loaded.call("cublasSetStream_v2", handle, stream)  # the workspace that was told


def _workspace(stream: int) -> tuple[Any, int]:
    """Memory for what a stream multiplies in graphs of one pool, which are replayed in turn.

    The pool keeps it. Of a capture that is not ours it is in the allocator's hands.
    """
    major = int(cupy.cuda.Device().compute_capability[:-1])
    size, capture = WORKSPACE[major >= 9], capturing.now
    if capture is None:
        return cupy.cuda.alloc(size), size
    kept = capture.pool.workspaces
    if stream not in kept:
        kept[stream] = capture.pool.malloc(size)
    return kept[stream], size
