"""One call of cuBLASLt for operands that lie in one way, and a vector that its epilogue takes."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import cupy
import numpy as np

from ...several import several
from ...wanted import wanted
from ..arrays import form_of, new_array
from ..gemm import handle_of_thread
from ..gemm_plan import LIBRARY_DTYPES, Gemm
from . import library as lt
from .library import CublasLt, LtObject, library

__all__ = ["BIAS", "BIAS_GRADIENT", "EpilogueProduct"]

Array = Any  # cupy.ndarray
BIAS, BIAS_GRADIENT = lt.CUBLASLT_EPILOGUE_BIAS, lt.CUBLASLT_EPILOGUE_BGRADB

ALIGNED = 256  # bytes: that no algorithm asks for more
# Bytes that an algorithm may use besides: what cuBLAS recommends, 32 MiB for Hopper and later.
WORKSPACE = {True: 32 << 20, False: 4 << 20}

_ONE = {kind: np.ones(1, kind) for kind in ("float32", "float64")}
_ZERO = {kind: np.zeros(1, kind) for kind in ("float32", "float64")}


class Way:
    """How a product is computed in one arithmetic: layouts, and an algorithm by alignment.

    A description has the address of a vector in it, so each thread that multiplies takes one.
    """

    __slots__ = ("library", "product", "compute", "scale", "layouts", "spare", "algorithms")

    def __init__(self, library: CublasLt, product: EpilogueProduct, compute: int) -> None:
        self.library, self.product, self.compute = library, product, compute
        self.scale = lt.CUDA_R_64F if product.wide else lt.CUDA_R_32F
        gemm, kind = product.gemm, getattr(lt, LIBRARY_DTYPES[product.dtype.name])
        m, n, k, batch = gemm.m, gemm.n, gemm.k, gemm.batch
        first = (k, m) if gemm.first_transposed else (m, k)
        second = (n, k) if gemm.second_transposed else (k, n)
        self.layouts = (
            library.layout(kind, *first, gemm.first_ld, batch, gemm.first_stride),
            library.layout(kind, *second, gemm.second_ld, batch, gemm.second_stride),
            library.layout(kind, m, n, m, batch, m * n),
        )
        self.spare: list[tuple[LtObject, int]] = [self.description()]
        self.algorithms: dict[Any, Any] = {}  # by device, and what addresses are multiples of

    def description(self) -> tuple[LtObject, int]:
        """One more, and the address in it."""
        gemm = self.product.gemm
        transposed = gemm.first_transposed, gemm.second_transposed
        epilogue = self.product.epilogue
        return self.library.description(self.compute, self.scale, transposed, epilogue), 0

    def algorithm(self, description: LtObject, alignment: int) -> Any:
        """(algorithm, bytes of workspace), or None where cuBLASLt knows none."""
        key = cupy.cuda.runtime.getDevice() if several.devices else 0, alignment
        try:
            return self.algorithms[key]
        except KeyError:
            major = int(cupy.cuda.Device().compute_capability[:-1])
            heuristic = self.library.heuristic(
                handle_of_thread(), description, self.layouts, alignment, WORKSPACE[major >= 9]
            )
            answer = None if heuristic is None else (heuristic.algo, heuristic.workspace_size)
            self.algorithms[key] = answer
            return answer


class EpilogueProduct:
    """`a @ b` with a vector: one that is added to each row, or takes the sums of `a`'s rows.

    Operands are described as for cuBLAS, by a `Gemm`: the result is in rows, so for cuBLAS the
    first operand is `b`, and the result's columns are its rows. The bias has one element for each
    of them; sums of the second operand over k have one for each of the others.
    """

    __slots__ = ("gemm", "dtype", "epilogue", "form", "wide", "_ways", "_scalars")

    def __init__(self, gemm: Gemm, shape: tuple[int, ...], dtype: Any, epilogue: int) -> None:
        self.gemm, self.dtype, self.epilogue = gemm, dtype, epilogue
        self.form, self.wide = form_of(shape, dtype), dtype.name == "float64"
        self._ways: dict[bool, Way] = {}  # by whether float32 may be rounded to TF32
        scalar = "float64" if self.wide else "float32"
        self._scalars = _ONE[scalar].ctypes.data, _ZERO[scalar].ctypes.data

    def run(self, a: Array, b: Array, vector: Array) -> Array | None:
        """The product, new; None where cuBLASLt does not take such operands."""
        loaded = library()
        if loaded is None:
            return None
        way = self._ways.get(wanted.tf32)
        if way is None:
            way = self._ways[wanted.tf32] = Way(loaded, self, self._compute())
        out = new_array(self.form)
        first, second, result, added = b.data.ptr, a.data.ptr, out.data.ptr, vector.data.ptr
        addresses = first | second | result | added | ALIGNED
        try:
            description, address = way.spare.pop()
        except IndexError:
            description, address = way.description()
        try:
            if address != added:
                loaded.set_bias(description, added)
                address = added
            algorithm = way.algorithm(description, addresses & -addresses)
            if algorithm is None:
                return None
            algo, size = algorithm
            workspace = cupy.cuda.alloc(size) if size else None  # of this stream's arena
            one, zero = self._scalars
            place, other, new = way.layouts
            status = loaded.matmul(
                handle_of_thread(), description.pointer, one, first, place.pointer, second,
                other.pointer, zero, result, new.pointer, result, new.pointer, byref(algo),
                0 if workspace is None else workspace.ptr, size,
                cupy.cuda.get_current_stream().ptr,
            )  # fmt: skip
        finally:
            way.spare.append((description, address))
        if status == lt.CUBLAS_STATUS_NOT_SUPPORTED:
            return None
        if status:
            raise lt.Refused("cublasLtMatmul", status)
        return out

    def _compute(self) -> int:
        if self.wide:
            return lt.CUBLAS_COMPUTE_64F
        rounds = wanted.tf32 and self.dtype.name == "float32"
        return lt.CUBLAS_COMPUTE_32F_FAST_TF32 if rounds else lt.CUBLAS_COMPUTE_32F
