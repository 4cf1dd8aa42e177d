"""cupyx.cusparse and cupyx.scipy.sparse of the fake CuPy: by SciPy, as strict as CuPy is."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


class csr_matrix:
    """An empty matrix of a shape, which gets its parts by assignment."""

    format = "csr"

    def __init__(self, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False) -> None:
        if shape is not None or not all(type(n) is int for n in arg1):
            raise AssertionError("the constructor looks at the parts, and waits for the device")
        if np.dtype(dtype).char not in "?fdFD":
            raise ValueError("Only bool, float32, float64, complex64 and complex128 are supported")
        self.shape, self.has_canonical_format = arg1, False
        self.data: Any = None
        self.indices: Any = None
        self.indptr: Any = None


def modules(clothed: Any, bare: Any, refused: Any, used: set[str]) -> dict[str, ModuleType]:
    """The two modules, by their names; the arguments are the fake's own functions."""

    def check_availability(name: str) -> bool:
        used.add("cupyx.cusparse.check_availability")
        return name == "spmm"

    def spmm(
        a: Any, b: Any, c: Any = None, alpha: Any = 1, beta: Any = 0, transa: bool = False,
        transb: bool = False,
    ) -> Any:  # fmt: skip
        import scipy.sparse

        used.update(("cupyx.cusparse.spmm", "cupyx.scipy.sparse.csr_matrix"))
        refused("cuSPARSE")
        if not b.flags.f_contiguous:
            raise ValueError("expected F-contiguous array for b")
        if not a.has_canonical_format:
            raise ValueError("expected canonical format for a")
        data, indices, indptr = map(bare, (a.data, a.indices, a.indptr))
        if indices.dtype != np.int32 or indptr.dtype != np.int32 or data.dtype != b.dtype:
            raise ValueError(f"got indices of {indices.dtype} and {indptr.dtype}, {data.dtype}")
        if not (data.flags.c_contiguous and indices.flags.c_contiguous):
            raise ValueError("cuSPARSE reads by pointers: want parts without gaps")
        matrix = scipy.sparse.csr_array((data, indices, indptr), shape=a.shape)
        host = bare(b).T if transb else bare(b)
        return clothed(np.asfortranarray((matrix.T if transa else matrix) @ host))

    cusparse: Any = ModuleType("cupyx.cusparse")
    cusparse.check_availability, cusparse.spmm = check_availability, spmm
    sparse: Any = ModuleType("cupyx.scipy.sparse")
    sparse.csr_matrix = csr_matrix
    return {cusparse.__name__: cusparse, sparse.__name__: sparse}
