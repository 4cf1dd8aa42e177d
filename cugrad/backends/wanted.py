"""What a user asks of the kernels of all backends: TF32 products, and the same bits in each run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

__all__ = ["Wanted", "known", "wanted"]


class Wanted:
    """Settings of the process; a kernel reads them when it is launched.

    `tf32`: products of float32 on CUDA may round their operands to TF32; off, as in PyTorch, unless
    the environment variable CUPY_TF32 says so. `deterministic`: sums come out alike in every run,
    and new memory has known contents. `fused`: on CUDA an elementwise row is one kernel; with
    CUGRAD_FUSED=0 in the environment it is a chain of CuPy's, to compare with. `cublaslt`: affine
    maps on CUDA are products of cuBLASLt, which add the bias; with TORCH_BLAS_PREFER_CUBLASLT=1.
    """

    __slots__ = ("tf32", "deterministic", "fused", "cublaslt")

    def __init__(self) -> None:
        self.tf32 = os.environ.get("CUPY_TF32", "0") not in ("", "0")
        self.deterministic = False
        self.fused = os.environ.get("CUGRAD_FUSED", "1") not in ("", "0")
        self.cublaslt = os.environ.get("TORCH_BLAS_PREFER_CUBLASLT", "0") not in ("", "0")


wanted = Wanted()


def known(array: Any) -> Any:
    """An uninitialised array, filled where the user wants memory with known contents.

    With PyTorch's values: nan, the largest integer, True.
    """
    if wanted.deterministic:
        kind = np.dtype(array.dtype)
        largest = np.iinfo(kind).max if kind.kind in "iu" else kind.kind == "b" or np.nan
        array[...] = largest
    return array
