"""Rows of sparse matrices, given by where their elements lie: products with dense ones, and parts
of products.
"""

from __future__ import annotations

from typing import Any

from ..flops import sparse_flops
from ..table import CAST, LINEAR, PRODUCT, row

Array = Any


def _sparse_product(
    xp: Any, rows: Array, columns: Array, values: Array, other: Array, count: int,
    ordered: bool = False,
) -> Array:  # fmt: skip
    """A matrix of `count` rows with these values, times a dense one; `ordered`: by rows."""
    if xp.sparse_product is not None and values.size and other.size:
        quick = xp.sparse_product(rows, columns, values, other, count, ordered)
        if quick is not None:
            return quick
    result = xp.zeros((count, other.shape[1]), other.dtype)
    xp.index_add(result, rows, xp.take(other, columns, axis=0) * values[:, None])
    return result


def _sampled_product(xp: Any, rows: Array, columns: Array, left: Array, right: Array) -> Array:
    """Those elements of left @ right.T that lie there."""
    if xp.sampled_product is not None and rows.size and left.size:
        return xp.sampled_product(rows, columns, left, right)
    return xp.sum(xp.take(left, rows, axis=0) * xp.take(right, columns, axis=0), axis=1)


row(
    "sparse_product", "rows columns values other", _sparse_product, LINEAR, promote=CAST,
    values=lambda m, g, rows, columns, other: m.sampled_product(rows, columns, g, other),
    other=lambda m, g, rows, columns, values, other_shape: (
        m.sparse_product(columns, rows, values, g, other_shape[0])),
    cost=PRODUCT, flops=sparse_flops, also="sparse.mm", public=False,
    doc="the product of a sparse matrix of count rows, its values at rows and columns, and a dense "
        "one; ordered says that rows are in order",
)  # fmt: skip

row(
    "sampled_product", "rows columns left right", _sampled_product, LINEAR, promote=CAST,
    left=lambda m, g, rows, columns, right, left_shape: (
        m.sparse_product(rows, columns, g, right, left_shape[0])),
    right=lambda m, g, rows, columns, left, right_shape: (
        m.sparse_product(columns, rows, g, left, right_shape[0])),
    cost=PRODUCT, flops=sparse_flops, public=False,
    doc="the elements of left @ right.T at rows and columns; the gradient of a sparse matrix",
)  # fmt: skip
