"""softmax of the elements that a sparse tensor has: others count as minus infinity."""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..dtypes import dtype as DType
from ..functions.creation.factories import full, zeros
from ..ops.dims import canonical_dim
from .coo import SparseTensor

__all__ = ["log_softmax", "softmax"]


def softmax(input: Any, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """exp(x) over its sum along a dim, of the elements that are there, which stay where they are.

    With gradients of any order, which go to these elements. NotImplementedError for a dense tensor.

    >>> import cugrad as torch
    >>> scores = torch.sparse_coo_tensor([[0, 0, 1], [0, 2, 1]], [1.0, 1.0, 5.0], (2, 3))
    >>> torch.sparse.softmax(scores, 1).to_dense()
    tensor([[0.5000, 0.0000, 0.5000],
            [0.0000, 1.0000, 0.0000]])
    """
    return _softmax("softmax", input, dim, dtype)


def log_softmax(input: Any, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """The logarithm of `softmax`, exact where that is small."""
    return _softmax("log_softmax", input, dim, dtype)


def _softmax(name: str, input: Any, dim: int, dtype: DType | None) -> SparseTensor:
    if not isinstance(input, SparseTensor):
        raise NotImplementedError(
            f"sparse.{name}: got a {type(input).__name__}, want a sparse tensor; use torch.{name}"
        )
    a = (input if dtype is None else input.to(dtype)).coalesce()
    if not a.dtype.is_floating_point:
        raise NotImplementedError(f'"{name}" not implemented for {a.dtype}')
    dim, sparse, values = canonical_dim(dim, a.dim()), a.sparse_dim(), a._values()
    if dim >= sparse:
        return a._with(getattr(recorded, name)(values, 1 + dim - sparse))
    group = a._indices()[0] * 0  # of elements that differ in nothing but that dim
    for d in range(sparse):
        if d != dim:
            group = group * a.shape[d] + a._indices()[d]
    keys, group = group.unique(return_inverse=True)
    shape = keys.shape[0], *values.shape[1:]
    where: dict[str, Any] = {"dtype": a.dtype, "device": a.device}
    most = full(shape, float("-inf"), **where).index_reduce(0, group, values.detach(), "amax")
    shifted = values - most.index_select(0, group)
    powers = shifted.exp()
    sums = zeros(shape, **where).index_add(0, group, powers)
    if name == "softmax":
        return a._with(powers / sums.index_select(0, group))
    return a._with(shifted - sums.log().index_select(0, group))
