"""The matrix product on CUDA, cuBLAS called for what matmul means, where cupy.matmul copies or
widens; and systems and factors, with and without a look at whether all went well.

cupy.matmul (14.2) runs stacks of float16 matrices in float32 after a copy, has none of bfloat16,
copies transposed operands, and does not fold `(B, T, C) @ (C, D)` into one product. Here every
float and complex dtype goes to one GEMM that accumulates in float32 (float64 for float64); dtypes
cuBLAS lacks go to cupy.matmul.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import cupy
import cupyx
import numpy as np

from ..wanted import wanted
from .aligned.products import aligned
from .arrays import form_of, new_array
from .gemm_plan import LIBRARY_DTYPES, Copy, Gemm, plan
from .launches.captured import captured_product
from .launches.starting import call, not_noted
from .memory import made_room

__all__ = ["CheckedLinalg", "Product", "gemm_of", "handle_of_thread", "matmul", "product_of"]

Array = Any  # cupy.ndarray
Ints = tuple[int, ...]
cuda = cupy.cuda

MOST_PLANS = 4096  # then the plans are made anew

# cuBLAS reads one and zero from host memory; these outlive every call. By what it sums in.
_SCALARS = {
    kind: np.array([1, 0], kind) for kind in ("float32", "float64", "complex64", "complex128")
}

_plans: dict[
    Any, Any
] = {}  # by dtypes, shapes and, unless dense, strides: a Product, or None for the long way


def matmul(a: Array, b: Array) -> Array:
    """`a @ b` with NumPy's shapes. ValueError where the shapes do not fit."""
    try:
        if a._c_contiguous and b._c_contiguous:
            product = _plans[a.dtype.num, a.shape, b.dtype.num, b.shape]
        else:
            product = _plans[a.dtype.num, a.shape, b.dtype.num, b.shape, a.strides, b.strides]
    except KeyError:
        product = _planned(a, b)
    return _matmul(a, b) if product is None else product.run(a, b)


def _planned(a: Array, b: Array) -> Product | None:
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    product = None
    if a.dtype == b.dtype:
        product = product_of(a.dtype, a.shape, a.strides, b.shape, b.strides)
    key: Any = a.dtype.num, a.shape, b.dtype.num, b.shape
    if not (a._c_contiguous and b._c_contiguous):
        key = *key, a.strides, b.strides
    _plans[key] = product
    return product


def product_of(
    dtype: Any, a_shape: Ints, a_strides: Ints, b_shape: Ints, b_strides: Ints
) -> Product | None:
    """The one GEMM for operands that lie so; None where it takes more, or none is to be called."""
    gemm = gemm_of(dtype, a_shape, a_strides, b_shape, b_strides)
    return None if gemm is None else Product(gemm[0], dtype, gemm[1])


def gemm_of(
    dtype: Any, a_shape: Ints, a_strides: Ints, b_shape: Ints, b_strides: Ints
) -> tuple[Gemm, Ints] | None:
    """What `product_of` calls, and the shape of the result."""
    if dtype.name not in LIBRARY_DTYPES or min(len(a_shape), len(b_shape)) < 2:
        return None
    if a_shape[-1] != b_shape[-2]:
        return None
    try:
        batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    except ValueError:
        return None
    shape = (*batch, a_shape[-2], b_shape[-1])
    if a_shape[-1] == 0 or prod(shape) == 0:
        return None
    step = plan(a_shape, _elements(a_strides, dtype), b_shape, _elements(b_strides, dtype), batch)
    return (step, shape) if isinstance(step, Gemm) and step.fits else None


def _elements(strides: Ints, dtype: Any) -> Ints:
    return tuple([stride // dtype.itemsize for stride in strides])


def _matmul(a: Array, b: Array) -> Array:
    """Vectors, operands to copy first, dtypes that cuBLAS lacks, and errors."""
    not_noted()
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
    out = _long_way(a, b)
    if row_vector:
        out = out[..., 0, :]
    return out[..., 0] if column_vector else out


def _long_way(a: Array, b: Array) -> Array:
    if a.dtype != b.dtype or a.dtype.name not in LIBRARY_DTYPES:
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
    return Product(step, a.dtype, shape).run(a, b) if step.fits else cupy.matmul(a, b)


def _plan(a: Array, b: Array, batch: Ints) -> Gemm | Copy:
    strides = [_elements(x.strides, x.dtype) for x in (a, b)]
    return plan(a.shape, strides[0], b.shape, strides[1], batch)


def _dense(x: Array, batch: Ints, broadcast: bool) -> Array:
    if broadcast:
        x = cupy.broadcast_to(x, (*batch, *x.shape[-2:]))
    return cupy.ascontiguousarray(x)


class Product:
    """One call of cuBLAS for operands that lie in one way, and all that it is told of them.

    `into` writes the product of arrays at two addresses to an array, at a third, that lies in the
    order of its dims.
    """

    __slots__ = ("shape", "dtype", "form", "into")

    def __init__(self, gemm: Gemm, dtype: Any, shape: Ints) -> None:
        self.shape, self.dtype, self.form = shape, dtype, form_of(shape, dtype)
        self.into = aligned(gemm, dtype, _called)

    def run(self, a: Array, b: Array) -> Array:
        """The product, new."""
        return self.write(a, b, new_array(self.form))

    def write(self, a: Array, b: Array, out: Array) -> Array:
        """The product in `out`."""
        call(self.into, a, b, out)
        return out


def _called(gemm: Gemm, dtype: Any) -> Callable[[int, int, int], None]:
    """The call of cuBLAS as a function of the addresses of operands and result."""
    from cupy_backends.cuda.libs import cublas  # not at the top: it loads libcublas

    first_transposed, second_transposed, m, n, k, *_, batch = gemm
    ways = cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T
    first_way, second_way = ways[first_transposed], ways[second_transposed]
    wide = dtype.name in ("float64", "complex128")
    scalars = _SCALARS.get(dtype.name, _SCALARS["float32"])
    one, zero = scalars[:1].ctypes.data, scalars[1:].ctypes.data
    kind = getattr(cupy.cuda.runtime, LIBRARY_DTYPES[dtype.name])
    exact = cublas.CUBLAS_COMPUTE_64F if wide else cublas.CUBLAS_COMPUTE_32F
    rounded = cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if dtype.name == "float32" else exact
    algorithm, size = cublas.CUBLAS_GEMM_DEFAULT, m * n
    first_ld, first_stride, second_ld, second_stride = gemm[5:9]
    gemm_call = cublas.gemmEx if batch == 1 else cublas.gemmStridedBatchedEx

    def single(a: int, b: int, out: int) -> None:
        told = (
            handle_of_thread(), first_way, second_way, m, n, k, one, b, kind, first_ld,
            a, kind, second_ld, zero, out, kind, m,
            rounded if wanted.tf32 else exact, algorithm,
        )  # fmt: skip
        try:
            gemm_call(*told)
        except NotImplementedError:  # CuPy calls no cuBLAS while its stream is captured
            captured_product("cublasGemmEx", *told)

    def many(a: int, b: int, out: int) -> None:
        told = (
            handle_of_thread(), first_way, second_way, m, n, k, one, b, kind, first_ld,
            first_stride, a, kind, second_ld, second_stride, zero, out, kind, m,
            size, batch, rounded if wanted.tf32 else exact, algorithm,
        )  # fmt: skip
        try:
            gemm_call(*told)
        except NotImplementedError:
            captured_product("cublasGemmStridedBatchedEx", *told)

    return single if batch == 1 else many


def handle_of_thread() -> int:
    """cuBLAS's handle of this thread, device and current stream."""
    try:
        return cuda.get_cublas_handle()
    except RuntimeError as error:  # it is made at the first call, and takes memory
        if not made_room(error):
            raise
        return cuda.get_cublas_handle()


ALWAYS_WORK = frozenset(["qr", "slogdet", "norm", "matrix_norm", "vector_norm"])


class CheckedLinalg:
    """cupy.linalg, told to look whether a matrix was singular, as NumPy does: that waits for the
    device. What cannot fail does not wait.
    """

    LinAlgError = cupy.linalg.LinAlgError

    @staticmethod
    def det(a: Array) -> Array:
        """The product of the pivots; CuPy's own goes through logarithms, which lose digits."""
        if not a.size:
            return cupy.ones(a.shape[:-2], a.dtype)
        lu, pivots, _ = cupy.linalg._decomposition._lu_factor(a, a.dtype)
        places = cupy.arange(1, a.shape[-1] + 1, dtype=pivots.dtype)
        exchanges = cupy.count_nonzero(pivots != places, axis=-1)
        sign = (1 - exchanges % 2 * 2).astype(a.dtype)
        return cupy.prod(cupy.diagonal(lu, 0, -2, -1), axis=-1) * sign

    @staticmethod
    def solve_triangular(a: Array, b: Array, lower: bool, unitriangular: bool) -> Array:
        """The solution for matrices b; infinities where a zero is on the diagonal of a."""
        from cupyx.scipy import linalg

        if not a.size or not b.size:
            return b.copy()
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a = cupy.broadcast_to(a, (*batch, *a.shape[-2:]))
        b = cupy.broadcast_to(b, (*batch, *b.shape[-2:]))
        return linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unitriangular)

    def __getattr__(self, name: str) -> Any:
        """Of CuPy's names; `unchecked_` before one is for a matrix that is known to be regular, or
        for who looks at the result.
        """
        function = getattr(cupy.linalg, name.removeprefix("unchecked_"))
        if name in ALWAYS_WORK:
            self.__dict__[name] = function
            return function
        how = "ignore" if name.startswith("unchecked_") else "raise"

        def checked(*args: Any, **kwargs: Any) -> Any:
            with cupyx.errstate(linalg=how):
                return function(*args, **kwargs)

        self.__dict__[name] = checked
        return checked
