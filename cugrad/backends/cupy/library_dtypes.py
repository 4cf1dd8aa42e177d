"""What NVIDIA's libraries call the dtypes that they multiply."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LIBRARY_DTYPES"]


class LibraryDtype(NamedTuple):
    """`cuda` is the name in library_types.h, which cuBLAS takes; `cudnn` is cuDNN's."""

    cuda: str
    cudnn: str


LIBRARY_DTYPES = {
    "float16": LibraryDtype("CUDA_R_16F", "HALF"),
    "bfloat16": LibraryDtype("CUDA_R_16BF", "BFLOAT16"),
    "float32": LibraryDtype("CUDA_R_32F", "FLOAT"),
    "float64": LibraryDtype("CUDA_R_64F", "DOUBLE"),
}
