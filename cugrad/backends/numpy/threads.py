"""The threads of NumPy's BLAS: how many compute a product, asked of and told to the library."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

__all__ = ["get_num_threads", "set_num_threads"]

# (get, set) of the libraries that NumPy may be built with, by their names in the library.
NAMES = [
    *[(f"{p}openblas_get_num_threads{s}", f"{p}openblas_set_num_threads{s}")
      for p in ("scipy_", "") for s in ("64_", "")],
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
]  # fmt: skip


@cache
def _functions() -> tuple[Any, Any] | None:
    """The two functions of the library that NumPy's extension was linked with; None: not known."""
    for name in ("numpy._core._multiarray_umath", "numpy.linalg._umath_linalg"):
        module = sys.modules.get(name)
        if module is None:
            continue
        library = ctypes.CDLL(module.__file__)  # finds what the libraries that it needs have
        for pair in NAMES:
            functions = [getattr(library, function, None) for function in pair]
            if None not in functions:
                return functions[0], functions[1]
    return None


def _asked() -> tuple[Any, Any]:
    functions = _functions()
    if functions is None:
        raise RuntimeError(
            "NumPy's BLAS here is none whose threads can be counted or set (OpenBLAS, MKL, BLIS); "
            "set its environment variable before Python starts, such as OMP_NUM_THREADS"
        )
    return functions


def get_num_threads() -> int:
    """The threads that compute a product. RuntimeError for a BLAS that cannot be asked."""
    return int(_asked()[0]())


def set_num_threads(count: int) -> None:
    """Lets `count` threads compute a product. RuntimeError for a BLAS that cannot be told."""
    _asked()[1](ctypes.c_int(count))
