"""cuBLAS for `fake_cuda`: two products by CuPy, which refuses them while its stream is captured,
and C functions for ctypes, which do them then as well.

Both read and write memory by pointer, in column-major order.
"""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from ctypes import c_int, c_int64, c_size_t, c_void_p
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.support import fake_cuda
from tests.support.fake_streams import captured, current, device_is_used

HANDLE = 1
SUCCESS, ALLOC_FAILED, INVALID_VALUE, EXECUTION_FAILED = 0, 3, 7, 13  # cublasStatus_t
STATUS = {1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 13: "EXECUTION_FAILED"}
NUMBERS = {"CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1, "CUBLAS_COMPUTE_64F": 70, "CUBLAS_COMPUTE_32F": 68,
           "CUBLAS_COMPUTE_32F_FAST_TF32": 77, "CUBLAS_GEMM_DEFAULT": -1}  # fmt: skip
# cudaDataType_t: the dtype, and by cublasComputeType_t that of the sums, and of alpha and beta
KINDS: dict[int, tuple[str, dict[int, str]]] = {
    0: ("float32", {68: "float32", 77: "float32"}),
    1: ("float64", {70: "float64"}),
    2: ("float16", {68: "float32"}),
    4: ("complex64", {68: "complex64", 77: "complex64"}),
    5: ("complex128", {70: "complex128"}),
    14: ("bfloat16", {68: "float32"}),
}


class CUBLASError(RuntimeError):
    """The real one's module does not load where there is no cuBLAS."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUBLAS_STATUS_{STATUS[status]}")
        self.status = status


def get_cublas_handle() -> int:
    """cuBLAS's handle; what STATE has says how often there is no memory for it."""
    if fake_cuda.STATE.without_handle:
        fake_cuda.STATE.without_handle -= 1
        raise CUBLASError(ALLOC_FAILED)
    return HANDLE


def refused(library: str) -> None:
    """What CuPy does wherever it tells a library its stream."""
    if current().capture is not None:
        raise NotImplementedError(
            f"calling {library} API during stream capture is currently unsupported"
        )


class Cublas(ModuleType):
    """CuPy's module."""

    def __getattr__(self, name: str) -> Any:
        if name == "CUBLASError":
            fake_cuda.USED.add("cupy_backends.cuda.libs.cublas.CUBLASError")
            return CUBLASError
        if name in NUMBERS:
            return NUMBERS[name]
        raise AttributeError(name)

    def gemmEx(self, *args: Any) -> None:
        fake_cuda.USED.add("cupy_backends.cuda.libs.cublas.gemmEx")
        refused("cuBLAS")
        single(*args)

    def gemmStridedBatchedEx(self, *args: Any) -> None:
        fake_cuda.USED.add("cupy_backends.cuda.libs.cublas.gemmStridedBatchedEx")
        refused("cuBLAS")
        several(*args)


def single(*args: Any) -> None:
    handle, ta, tb, m, n, k, alpha, A, At, lda, B, Bt, ldb, beta, C, Ct, ldc, how, _ = args
    gemm(handle, ta, tb, m, n, k, alpha, A, At, lda, 0, B, Bt, ldb, 0, beta, C, Ct, ldc, 0, 1, how)


def several(*args: Any) -> None:
    (handle, ta, tb, m, n, k, alpha, A, At, lda, sa, B, Bt, ldb, sb, beta, C, Ct, ldc, sc,
     batch, how, _) = args  # fmt: skip
    gemm(handle, ta, tb, m, n, k, alpha, A, At, lda, sa, B, Bt, ldb, sb, beta, C, Ct, ldc, sc,
         batch, how)  # fmt: skip


def gemm(
    handle: int, ta: int, tb: int, m: int, n: int, k: int, alpha: int, A: int, At: int, lda: int,
    sa: int, B: int, Bt: int, ldb: int, sb: int, beta: int, C: int, Ct: int, ldc: int, sc: int,
    batch: int, how: int,
) -> None:  # fmt: skip
    assert handle == HANDLE and At == Bt == Ct
    wide = KINDS[At][1][how]
    assert [scalar(alpha, wide), scalar(beta, wide)] == [1, 0]
    _gemm(ta, tb, m, n, k, A, At, lda, sa, B, ldb, sb, C, ldc, sc, batch, wide)


def scalar(pointer: int, kind: str) -> Any:
    return np.frombuffer(ctypes.string_at(pointer, np.dtype(kind).itemsize), kind)[0]


@partial(captured, changes=True)
def _gemm(
    ta: int, tb: int, m: int, n: int, k: int, A: int, kind: int, lda: int, sa: int,
    B: int, ldb: int, sb: int, C: int, ldc: int, sc: int, batch: int, wide: str,
) -> None:  # fmt: skip
    device_is_used()
    a = matrices(A, kind, (k, m) if ta else (m, k), lda, sa, batch).astype(wide)
    b = matrices(B, kind, (n, k) if tb else (k, n), ldb, sb, batch).astype(wide)
    a, b = a.swapaxes(1, 2) if ta else a, b.swapaxes(1, 2) if tb else b
    with np.errstate(all="ignore"):
        matrices(C, kind, (m, n), ldc, sc, batch)[...] = a @ b


def matrices(
    pointer: int, kind: int, shape: tuple[int, int], ld: int, stride: int, batch: int
) -> np.ndarray[Any, Any]:
    """A stack of column-major matrices at an address."""
    rows, columns = shape
    assert ld >= max(1, rows), f"cuBLAS refuses ld={ld} for {rows} rows"
    dtype: Any = KINDS[kind][0]
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    size = np.dtype(dtype).itemsize
    reach = ((batch - 1) * stride + (columns - 1) * ld + rows) * size
    memory = np.frombuffer((ctypes.c_char * reach).from_address(pointer), dtype)
    steps = (stride * size, size, ld * size)
    return np.lib.stride_tricks.as_strided(memory, (batch, rows, columns), steps, writeable=True)


class Library:
    """libcublas: its functions by name, and what has been called; `calls` are the products.

    A product that is captured works in memory that it was told after its stream: cublasSetStream
    forgets it.
    """

    def __init__(self) -> None:
        self.calls: list[SimpleNamespace] = []
        self.stream, self.workspace = 0, (0, 0)
        matrix, stack = [c_void_p, c_int, c_int], [c_void_p, c_int, c_int, c_int64]
        head = [c_void_p, *[c_int] * 5, c_void_p]
        functions: dict[str, tuple[Callable[..., None], list[Any]]] = {
            "SetStream_v2": (self.set_stream, [c_void_p, c_void_p]),
            "SetWorkspace_v2": (self.set_workspace, [c_void_p, c_void_p, c_size_t]),
            "GemmEx": (
                self.product("single", single),
                [*head, *matrix, *matrix, c_void_p, *matrix, c_int, c_int],
            ),
            "GemmStridedBatchedEx": (
                self.product("several", several),
                [*head, *stack, *stack, c_void_p, *stack, *[c_int] * 3],
            ),
        }
        for name, (function, signature) in functions.items():
            kind = ctypes.CFUNCTYPE(c_int, *signature)
            setattr(self, f"cublas{name}", kind(self.answering(function)))

    @staticmethod
    def answering(function: Callable[..., None]) -> Callable[..., int]:
        def call(*args: Any) -> int:
            try:
                function(*args)
            except BaseException:
                traceback.print_exc()
                return INVALID_VALUE
            return SUCCESS

        return call

    def set_stream(self, handle: int, stream: int | None) -> None:
        assert handle == HANDLE
        self.stream, self.workspace = stream or 0, (0, 0)

    def set_workspace(self, handle: int, place: int, size: int) -> None:
        assert handle == HANDLE and place % 256 == 0
        self.workspace = place, size

    def product(self, name: str, function: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            assert self.stream == current().ptr
            place, size = self.workspace
            assert place and size >= 32 << 20, "what cuBLAS works in by itself is not a graph's"
            self.calls.append(SimpleNamespace(name=name, stream=self.stream, workspace=place))
            function(*args)

        return call


LIBRARY = Library()


class CDLL(ctypes.CDLL):
    """What ctypes loads: libcublas is the one above."""

    def __new__(cls, name: Any, *args: Any, **kwargs: Any) -> Any:
        if str(name).startswith("libcublas.so"):
            return LIBRARY
        return super().__new__(cls)
