"""Turns a NumPy matmul of strided operands into one cuBLAS GEMM, or names the operand to copy
first.

cuBLAS reads column-major matrices, so it is asked for the transpose, C^T = B^T A^T, whose memory
is C's in rows. An operand whose rows or whose columns are dense needs no copy: the other stride is
its leading dimension. Pure arithmetic on shapes and strides (in elements), so tests prove it
without a GPU.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

__all__ = ["LIBRARY_DTYPES", "Copy", "Gemm", "plan"]

Ints = tuple[int, ...]


LIBRARY_DTYPES = {  # that cuBLAS has, and their names in library_types.h
    "float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF", "float32": "CUDA_R_32F",
    "float64": "CUDA_R_64F", "complex64": "CUDA_C_32F", "complex128": "CUDA_C_64F",
}  # fmt: skip


class Gemm(NamedTuple):
    """The arguments of one (batched) GEMM in cuBLAS's order: its first operand is matmul's second.

    `first_*` is matmul's `other`, `second_*` its `self`; strides and leading dimensions in
    elements.
    """

    first_transposed: bool
    second_transposed: bool
    m: int
    n: int
    k: int
    first_ld: int
    first_stride: int
    second_ld: int
    second_stride: int
    batch: int

    @property
    def fits(self) -> bool:
        """Whether cuBLAS's 32-bit sizes can say it."""
        return max(self.m, self.n, self.k, self.first_ld, self.second_ld, self.batch) < 2**31


class Copy(NamedTuple):
    """The operand (0 or 1) to copy to dense rows; `broadcast` says over the whole batch."""

    operand: int
    broadcast: bool


def plan(
    a_shape: Ints, a_strides: Ints, b_shape: Ints, b_strides: Ints, batch_shape: Ints
) -> Gemm | Copy:
    """One GEMM for `a @ b`, both at least 2-D and none empty, or the operand to copy first.

    >>> plan((5, 2, 3), (6, 3, 1), (3, 4), (4, 1), (5,))  # a stack times one matrix is one product
    Gemm(first_transposed=False, second_transposed=False, m=4, n=10, k=3, first_ld=4,
         first_stride=0, second_ld=3, second_stride=0, batch=1)
    """
    rows, k, columns = a_shape[-2], a_shape[-1], b_shape[-1]
    a_row, a_column = a_strides[-2], a_strides[-1]
    batch = prod(batch_shape)
    if batch > 1 and prod(b_shape[:-2]) == 1:
        folded = _one_stride(a_shape[:-1], a_strides[:-1])
        if folded is not None and a_shape[:-2] == batch_shape:
            rows, a_row, batch = rows * batch, folded, 1
            a_shape, batch_shape = (rows, k), ()
    # the batch first: a copy over the whole batch mends the layout as well
    a_stride = _batch_stride(a_shape[:-2], a_strides, batch_shape)
    if a_stride is None:
        return Copy(0, True)
    b_stride = _batch_stride(b_shape[:-2], b_strides, batch_shape)
    if b_stride is None:
        return Copy(1, True)
    a_layout = _layout(rows, k, a_row, a_column)
    if a_layout is None:
        return Copy(0, False)
    b_layout = _layout(k, columns, b_strides[-2], b_strides[-1])
    if b_layout is None:
        return Copy(1, False)
    return Gemm(
        b_layout[0], a_layout[0], columns, rows, k,
        b_layout[1], b_stride, a_layout[1], a_stride, batch,
    )  # fmt: skip


def _layout(rows: int, columns: int, row: int, column: int) -> tuple[bool, int] | None:
    """(transposed, leading dimension) of a matrix with these strides; None if neither is dense.

    A stride along a dimension of size 1 is never used, so it says nothing.
    """
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return False, max(row, columns) if rows > 1 else columns
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return True, max(column, rows) if columns > 1 else rows
    return None


def _batch_stride(shape: Ints, strides: Ints, batch_shape: Ints) -> int | None:
    """The one step from matrix to matrix of an operand, 0 if it has one matrix for all; or None."""
    if prod(shape) == 1:
        return 0
    if shape != batch_shape:
        return None
    stride = _one_stride(shape, strides[: len(shape)])
    return None if stride is None or stride < 0 else stride


def _one_stride(shape: Ints, strides: Ints) -> int | None:
    """The stride of the dimensions seen as one, or None where they do not follow one another."""
    step = size = 1
    seen = False
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 1:
            continue
        if not seen:
            step, seen = stride, True
        elif stride != step * size:
            return None
        size *= extent
    return step if seen else 0
