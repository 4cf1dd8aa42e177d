"""Rows of embedding: rows of a matrix by their numbers, and the sums that lead back."""

from __future__ import annotations

from typing import Any

from ...dtypes import is_half
from ..precision import narrow
from ..table import CAST, LINEAR, row

Array = Any


def _embedding(xp: Any, weight: Array, indices: Array, padding_idx: int = -1) -> Array:
    return xp.take(weight, indices, axis=0)


def _embedding_backward(
    xp: Any, grad_output: Array, indices: Array, num_weights: int, padding_idx: int = -1
) -> Array:
    width = grad_output.shape[-1]
    result = xp.zeros((num_weights, width), xp.float32 if is_half(grad_output.dtype) else
                      grad_output.dtype)  # fmt: skip
    values = xp.reshape(grad_output, (indices.size, width)).astype(result.dtype, copy=False)
    xp.index_add(result, xp.reshape(indices, -1), values)
    if padding_idx >= 0:
        result[padding_idx] = 0
    return narrow(xp, result, grad_output)


row(
    "one_hot", "self",
    lambda xp, self, num_classes: (self[..., None] == xp.arange(num_classes)).astype(xp.int64),
    public=False, dense=True, kernels=(1, 0),
    doc="1 at each number along a last dim of num_classes, else 0",
)  # fmt: skip

row(
    "embedding", "weight indices", _embedding, LINEAR, promote=CAST,
    weight=lambda m, g, indices, weight_shape, padding_idx: (
        m.embedding_dense_backward(g, indices, weight_shape[0], padding_idx)),
    doc="the rows of weight at indices; row padding_idx, if not negative, gets no gradient",
)  # fmt: skip

row(
    "embedding_dense_backward", "grad_output indices", _embedding_backward, LINEAR, promote=CAST,
    grad_output=lambda m, g, indices, padding_idx: _without(
        m, m.embedding(g, indices, padding_idx), indices, padding_idx),
    doc="adds each row of grad_output to row indices of num_weights rows; the adjoint of embedding",
)  # fmt: skip


def _without(m: Any, rows: Any, indices: Any, padding_idx: int) -> Any:
    if padding_idx < 0:
        return rows
    return m.masked_fill(rows, m.unsqueeze(m.eq(indices, padding_idx), len(indices.shape)), 0.0)
