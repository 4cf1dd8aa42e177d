"""What a user asks of the kernels of all backends: TF32 products, and the same bits in each run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

__all__ = ["Wanted", "known", "wanted"]


class ByCudnn:
    """Whether convolutions on CUDA are cuDNN's, and how: the switches of `torch.backends.cudnn`.

    `asked` is CUGRAD_CUDNN=1 in the environment; cuDNN's package is imported only then.
    """

    __slots__ = (
        "asked", "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32",
    )  # fmt: skip

    def __init__(self) -> None:
        self.asked = os.environ.get("CUGRAD_CUDNN", "0") not in ("", "0")
        self.enabled, self.benchmark, self.deterministic, self.allow_tf32 = True, False, False, True
        self.benchmark_limit: int | None = None

    @property
    def used(self) -> bool:
        return self.asked and self.enabled


class Wanted:
    """Settings of the process; a kernel reads them when it is launched.

    `tf32`: products of float32 on CUDA may round their operands to TF32; off, as in PyTorch, unless
    the environment variable CUPY_TF32 says so. `deterministic`: sums come out alike in every run,
    and new memory has known contents. `fused`: on CUDA an elementwise row is one kernel; with
    CUGRAD_FUSED=0 in the environment it is a chain of CuPy's, to compare with. `cublaslt`: affine
    maps on CUDA are products of cuBLASLt, which add the bias; with TORCH_BLAS_PREFER_CUBLASLT=1.
    `cudnn`: see ByCudnn. `attention`: PyTorch's ways to compute it on CUDA, and whether each is
    enabled: "flash" are kernels on tensor cores, "mem_efficient" are those of float32 products;
    tensor functions, "math", serve what no kernel takes, and "cudnn" means nothing here.
    """

    __slots__ = ("tf32", "deterministic", "fused", "cublaslt", "cudnn", "attention")

    def __init__(self) -> None:
        self.tf32 = os.environ.get("CUPY_TF32", "0") not in ("", "0")
        self.deterministic = False
        self.fused = os.environ.get("CUGRAD_FUSED", "1") not in ("", "0")
        self.cudnn = ByCudnn()
        self.attention = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn"), True)
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
