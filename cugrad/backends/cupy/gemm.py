"""The matrix product on CUDA: cuBLAS called for what matmul means, where cupy.matmul copies or
widens.

cupy.matmul (14.2) runs stacks of float16 matrices in float32 after a copy, has none of bfloat16,
copies transposed operands, and does not fold `(B, T, C) @ (C, D)` into one product. Here every
float dtype goes to one GEMM that accumulates in float32 (float64 for float64); dtypes cuBLAS lacks
go to cupy.matmul.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from ..wanted import wanted
from .gemm_plan import Copy, Gemm, plan
from .memory import made_room

__all__ = ["matmul"]

Array = Any  # cupy.ndarray


# cuBLAS reads its scalars from host memory; these outlive every call.
_SCALARS: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {
    "float32": (np.ones(1, np.float32), np.zeros(1, np.float32)),
    "float64": (np.ones(1, np.float64), np.zeros(1, np.float64)),
}
_SCALAR_OF = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}


def matmul(a: Array, b: Array) -> Array:
    """`a @ b` with NumPy's shapes. ValueError where the shapes do not fit."""
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(
            f"matmul: got {a.shape} and {b.shape}, want 1-D or more; use * for scalars"
        )
    row_vector, column_vector = a.ndim == 1, b.ndim == 1
    if row_vector:
        a = a[None, :]
    if column_vector:
        b = b[:, None]
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul: got {a.shape} and {b.shape}, want x.shape[-1] == y.shape[-2]")
    out = _product(a, b)
    if row_vector:
        out = out[..., 0, :]
    return out[..., 0] if column_vector else out


def _product(a: Array, b: Array) -> Array:
    if a.dtype != b.dtype or a.dtype.name not in _SCALAR_OF:
        return cupy.matmul(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    if a.shape[-1] == 0 or prod(shape) == 0:
        return cupy.zeros(shape, a.dtype)
    step = _plan(a, b, batch)
    while isinstance(step, Copy):  # at most once an operand: a dense copy always has a plan
        operand = _dense((a, b)[step.operand], batch, step.broadcast)
        a, b = (operand, b) if step.operand == 0 else (a, operand)
        step = _plan(a, b, batch)
    if not step.fits:
        return cupy.matmul(a, b)
    out = cupy.empty(shape, a.dtype)
    _call(step, a, b, out)
    return out


def _plan(a: Array, b: Array, batch: tuple[int, ...]) -> Gemm | Copy:
    size = a.dtype.itemsize
    a_strides = tuple([stride // size for stride in a.strides])
    b_strides = tuple([stride // size for stride in b.strides])
    return plan(a.shape, a_strides, b.shape, b_strides, batch)


def _dense(x: Array, batch: tuple[int, ...], broadcast: bool) -> Array:
    if broadcast:
        x = cupy.broadcast_to(x, (*batch, *x.shape[-2:]))
    return cupy.ascontiguousarray(x)


def _call(gemm: Gemm, a: Array, b: Array, out: Array) -> None:
    from cupy_backends.cuda.libs import cublas  # not at the top: it loads libcublas

    runtime = cupy.cuda.runtime
    name = a.dtype.name
    kind = {
        "float16": runtime.CUDA_R_16F,
        "bfloat16": runtime.CUDA_R_16BF,
        "float32": runtime.CUDA_R_32F,
        "float64": runtime.CUDA_R_64F,
    }[name]
    compute = cublas.CUBLAS_COMPUTE_32F
    if name == "float64":
        compute = cublas.CUBLAS_COMPUTE_64F
    elif name == "float32" and wanted.tf32:
        compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
    one, zero = _SCALARS[_SCALAR_OF[name]]
    try:
        handle = cupy.cuda.get_cublas_handle()  # of this thread and device, for the current stream
    except RuntimeError as error:  # it is made at the first call, and takes memory
        if not made_room(error):
            raise
        handle = cupy.cuda.get_cublas_handle()
    first_op = cublas.CUBLAS_OP_T if gemm.first_transposed else cublas.CUBLAS_OP_N
    second_op = cublas.CUBLAS_OP_T if gemm.second_transposed else cublas.CUBLAS_OP_N
    algorithm = cublas.CUBLAS_GEMM_DEFAULT
    if gemm.batch == 1:
        cublas.gemmEx(
            handle, first_op, second_op, gemm.m, gemm.n, gemm.k, one.ctypes.data,
            b.data.ptr, kind, gemm.first_ld,
            a.data.ptr, kind, gemm.second_ld,
            zero.ctypes.data, out.data.ptr, kind, gemm.m, compute, algorithm,
        )  # fmt: skip
    else:
        cublas.gemmStridedBatchedEx(
            handle, first_op, second_op, gemm.m, gemm.n, gemm.k, one.ctypes.data,
            b.data.ptr, kind, gemm.first_ld, gemm.first_stride,
            a.data.ptr, kind, gemm.second_ld, gemm.second_stride,
            zero.ctypes.data, out.data.ptr, kind, gemm.m, gemm.m * gemm.n,
            gemm.batch, compute, algorithm,
        )  # fmt: skip
