"""Products of sparse matrices on the host: by SciPy, which is an optional dependency."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .half import is_half

__all__ = ["sampled_product", "sparse_product"]

Array = np.ndarray[Any, Any]
SOME = 1 << 17  # elements that are taken at a time: they stay in the cache


@cache
def _scipy_sparse() -> Any:
    """scipy.sparse, or None where it is not installed."""
    try:
        import scipy.sparse
    except ImportError:
        return None
    return scipy.sparse


def sparse_product(
    rows: Array, columns: Array, values: Array, dense: Array, count: int, ordered: bool
) -> Array | None:
    """The matrix of these values @ dense; None where SciPy has none. Halves add up in float32."""
    sparse = _scipy_sparse()
    if sparse is None or dense.dtype.kind == "b":
        return None
    if is_half(dense.dtype):
        wide, other = values.astype(np.float32), dense.astype(np.float32)
        product = sparse_product(rows, columns, wide, other, count, ordered)
        return None if product is None else product.astype(dense.dtype)
    elements = sparse.coo_array((values, (rows, columns)), shape=(count, dense.shape[0]))
    product = elements.tocsr() @ dense  # the rows' order takes a tenth of the time of the product
    return np.ascontiguousarray(product)


def sampled_product(rows: Array, columns: Array, left: Array, right: Array) -> Array:
    """Elements of left @ right.T, some rows of both at a time."""
    kind = left.dtype
    wide = np.dtype(np.float32) if is_half(kind) else kind
    result = np.empty(rows.size, wide)
    step = max(SOME // left.shape[1], 1)
    for start in range(0, rows.size, step):
        some = slice(start, start + step)
        a, b = left[rows[some]].astype(wide, copy=False), right[columns[some]]
        np.einsum("ef,ef->e", a, b.astype(wide, copy=False), out=result[some])
    return result.astype(kind, copy=False)
