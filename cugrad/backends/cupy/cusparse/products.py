"""Products of sparse matrices by cuSPARSE, as CuPy calls it."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from ...wanted import wanted

__all__ = ["sparse_product"]

Array = Any  # cupy.ndarray
HALVES = frozenset(["float16", "bfloat16"])


@cache
def _is_there() -> bool:
    """Whether CuPy finds cuSPARSE, which comes with CUDA's toolkit."""
    try:
        from cupyx import cusparse

        return bool(cusparse.check_availability("spmm"))
    except (ImportError, RuntimeError):
        return False


def sparse_product(
    rows: Array, columns: Array, values: Array, dense: Array, count: int, ordered: bool
) -> Array | None:
    """The matrix of these values @ dense; None where cuSPARSE has none, or does not add up in the
    same order each time and the user wants that. Halves add up in float32. Nothing waits.
    """
    kind = dense.dtype
    if kind.name in HALVES:
        wide, other = values.astype(np.float32), dense.astype(np.float32)
        product = sparse_product(rows, columns, wide, other, count, ordered)
        return None if product is None else product.astype(kind)
    if kind.char not in "fdFD" or wanted.deterministic or not _is_there():
        return None
    from cupyx import cusparse
    from cupyx.scipy import sparse

    if not ordered:
        order = cupy.argsort(rows)
        rows, columns, values = rows[order], columns[order], values[order]
    # an empty matrix that gets its parts: the constructor would look at them, and wait
    matrix = sparse.csr_matrix((count, dense.shape[0]), dtype=kind)
    matrix.data, matrix.indices = cupy.ascontiguousarray(values), columns.astype(np.int32)
    matrix.indptr = cupy.searchsorted(rows, cupy.arange(count + 1)).astype(np.int32)
    matrix.has_canonical_format = True  # it need not be: rows are added up as they stand
    turned = cupy.ascontiguousarray(dense).T  # cuSPARSE reads and writes by columns
    return cupy.ascontiguousarray(cusparse.spmm(matrix, turned, transb=True))
