"""What is called of libcublasLt, by ctypes: it lies beside the cuBLAS that CuPy has loaded.

CuPy does not bind it, and nvmath-python, which does, would be one more package to install. The
numbers are those of CUDA's headers, which stand behind each group.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

import cupy

__all__ = ["CublasLt", "Refused", "library"]

# library_types.h, cudaDataType_t
CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF = 0, 1, 2, 14
# cublas_api.h, cublasComputeType_t and cublasOperation_t
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 70, 77
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
# cublas_api.h, cublasStatus_t
CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_NOT_SUPPORTED = 0, 3, 15
# cublasLt.h, cublasLtMatmulDescAttributes_t
CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB = 3, 4  # int32_t
CUBLASLT_MATMUL_DESC_EPILOGUE = 7  # uint32_t
CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8  # void*
# cublasLt.h, cublasLtEpilogue_t
CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB = 1, 4, 512
# cublasLt.h, cublasLtMatrixLayoutAttribute_t
CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5  # int32_t
CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6  # int64_t
# cublasLt.h, cublasLtMatmulPreferenceAttributes_t
CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1  # uint64_t
CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_BYTES = 5, 6, 7, 8  # uint32_t each: of A, B, C, D


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: how to multiply; opaque."""

    _fields_ = [("data", c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm, and what it takes."""

    _fields_ = [
        ("algo", Algorithm), ("workspace_size", c_size_t), ("state", c_int),
        ("waves_count", ctypes.c_float), ("reserved", c_int * 4),
    ]  # fmt: skip


SIGNATURES: dict[str, list[Any]] = {
    "cublasLtMatmulDescCreate": [POINTER(c_void_p), c_int, c_int],
    "cublasLtMatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulDescDestroy": [c_void_p],
    "cublasLtMatrixLayoutCreate": [POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64],
    "cublasLtMatrixLayoutSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatrixLayoutDestroy": [c_void_p],
    "cublasLtMatmulPreferenceCreate": [POINTER(c_void_p)],
    "cublasLtMatmulPreferenceSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulPreferenceDestroy": [c_void_p],
    "cublasLtMatmulAlgoGetHeuristic": [
        *[c_void_p] * 7, c_int, POINTER(Heuristic), POINTER(c_int),
    ],
    # handle, description, alpha, A, its layout, B, its layout, beta, C, its layout, D, its layout,
    # algorithm, workspace, its bytes, stream
    "cublasLtMatmul": [*[c_void_p] * 14, c_size_t, c_void_p],
}  # fmt: skip


class Refused(RuntimeError):
    """A call that cuBLASLt has refused; `status` is its cublasStatus_t."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name}: cuBLASLt has answered with the status {status}")
        self.status = status


class LtObject:
    """An object of the library's, which is destroyed with the last reference to it."""

    __slots__ = ("pointer", "destroy")

    def __init__(self, pointer: int, destroy: Any) -> None:
        self.pointer, self.destroy = pointer, destroy

    def __del__(self) -> None:
        self.destroy(self.pointer)


class CublasLt:
    """The functions, with errors as exceptions; made of what ctypes has loaded."""

    def __init__(self, loaded: Any) -> None:
        self._functions: dict[str, Any] = {}
        for name, signature in SIGNATURES.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = signature, c_int
            self._functions[name] = function
        self.matmul = self._functions["cublasLtMatmul"]

    def call(self, name: str, *args: Any) -> None:
        status = self._functions[name](*args)
        if status != CUBLAS_STATUS_SUCCESS:
            raise Refused(name, status)

    def _create(self, what: str, *args: Any) -> LtObject:
        pointer = c_void_p()
        self.call(f"cublasLt{what}Create", byref(pointer), *args)
        assert pointer.value is not None
        return LtObject(pointer.value, self._functions[f"cublasLt{what}Destroy"])

    def _set(self, what: str, held: LtObject, attribute: int, value: Any) -> None:
        """Sets an attribute; the type of `value` is that which the header names."""
        size = ctypes.sizeof(value)
        self.call(f"cublasLt{what}SetAttribute", held.pointer, attribute, byref(value), size)

    def description(
        self, compute: int, scale: int, transposed: tuple[bool, bool], epilogue: int
    ) -> LtObject:
        """What is done: in which arithmetic, and with A or B transposed."""
        held = self._create("MatmulDesc", compute, scale)
        names = CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB
        for attribute, is_transposed in zip(names, transposed):
            way = CUBLAS_OP_T if is_transposed else CUBLAS_OP_N
            self._set("MatmulDesc", held, attribute, c_int32(way))
        self._set("MatmulDesc", held, CUBLASLT_MATMUL_DESC_EPILOGUE, c_uint32(epilogue))
        return held

    def set_bias(self, description: LtObject, pointer: int) -> None:
        """The vector of an epilogue, which is read or written."""
        value = c_uint64(pointer)
        self._set("MatmulDesc", description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, value)

    def layout(
        self, kind: int, rows: int, columns: int, ld: int, batch: int, stride: int
    ) -> LtObject:
        """A stack of matrices in columns."""
        held = self._create("MatrixLayout", kind, rows, columns, ld)
        if batch > 1:
            count, offset = c_int32(batch), c_int64(stride)
            self._set("MatrixLayout", held, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count)
            self._set("MatrixLayout", held, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, offset)
        return held

    def heuristic(
        self, handle: int, description: LtObject, layouts: tuple[LtObject, LtObject, LtObject],
        alignment: int, workspace: int,
    ) -> Heuristic | None:  # fmt: skip
        """The algorithm that is thought to be the fastest; None where there is none.

        All operands begin at multiples of `alignment` bytes.
        """
        preference = self._create("MatmulPreference")
        most = c_uint64(workspace)
        self._set("MatmulPreference", preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most)
        for attribute in CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_BYTES:
            self._set("MatmulPreference", preference, attribute, c_uint32(alignment))
        a, b, d = [layout.pointer for layout in layouts]
        result, count = Heuristic(), c_int()
        try:
            self.call(
                "cublasLtMatmulAlgoGetHeuristic", handle, description.pointer, a, b, d, d,
                preference.pointer, 1, byref(result), byref(count),
            )  # fmt: skip
        except Refused as error:
            if error.status != CUBLAS_STATUS_NOT_SUPPORTED:
                raise
            return None
        return result if count.value and result.state == CUBLAS_STATUS_SUCCESS else None


@cache
def library() -> CublasLt | None:
    """The library of the CUDA that CuPy runs on; None where it is not there."""
    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    from cupy_backends.cuda.libs import cublas  # noqa: F401  # loads it, wherever it lies

    try:
        return CublasLt(ctypes.CDLL(f"libcublasLt.so.{major}"))
    except (OSError, AttributeError):
        return None
