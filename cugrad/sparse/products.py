"""Products of sparse and dense matrices."""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..dtypes import promote_types
from ..functions import FUNCTIONS
from ..functions.calls.arguments import as_own
from ..functions.creation.factories import zeros
from ..functions.shapes.copies import cat
from ..tensor import Tensor
from .coo import SparseTensor

__all__ = ["addmm", "bmm", "dsmm", "linear", "mm", "smm", "spmm"]


def linear(input: Tensor, weight: Any, bias: Any = None) -> Tensor:
    """`functional.linear` with a weight that is sparse; NotImplementedError for a sparse input."""
    if isinstance(input, SparseTensor) or isinstance(bias, SparseTensor):
        raise NotImplementedError("linear: want a dense input and bias; call to_dense()")
    rows = input.reshape(-1, input.shape[-1])
    product = mm(rows, weight.t()).reshape((*input.shape[:-1], weight.shape[0]))
    return product if bias is None else product + bias


def mm(mat1: Any, mat2: Any) -> Tensor:
    """The product of two matrices, one of them sparse, or of a sparse one and a vector.

    Dense, unless both are sparse. Gradients go to the values and to the dense operand.
    RuntimeError for shapes that do not fit.

    >>> import cugrad as torch
    >>> a = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> torch.sparse.mm(a, torch.eye(3))
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if not isinstance(mat1, SparseTensor):
        if isinstance(mat1, Tensor) and isinstance(mat2, Tensor) and not mat2.is_sparse:
            return FUNCTIONS["mm"](mat1, mat2)
        if not isinstance(mat1, Tensor) or not isinstance(mat2, SparseTensor):
            raise TypeError(
                f"mm: got {type(mat1).__name__} and {type(mat2).__name__}, want Tensors"
            )
        if mat1.dim() != 2:
            return mm(mat2.t(), mat1)
        return as_own(mm(mat2.t(), mat1.t()).t(), ())
    if mat1.dim() != 2 or mat1.dense_dim() or mat2.dim() not in (1, 2):
        raise RuntimeError(
            f"mm: got shapes {list(mat1.shape)} and {list(mat2.shape)}, want a sparse matrix and a "
            "matrix or a vector"
        )
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({mat1.shape[0]}x{mat1.shape[1]} and "
            f"{'x'.join(map(str, mat2.shape))})"
        )
    if isinstance(mat2, SparseTensor):
        return _of_two(mat1, mat2)
    rows, columns = mat1._indices().unbind(0)
    kind = promote_types(mat1.dtype, mat2.dtype)
    values, dense = mat1._values().to(kind), mat2.to(kind)
    if mat2.dim() == 1:
        dense = dense.unsqueeze(1)
    product = recorded.sparse_product(
        rows, columns, values, dense, mat1.shape[0], mat1.is_coalesced()
    )
    return product.squeeze(1) if mat2.dim() == 1 else product


def _of_two(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The sparse product of two: a term for each pair of elements that meet in a row of b."""
    b = b.coalesce()
    rows, columns = a._indices().unbind(0)
    inner, outer = b._indices().unbind(0)
    counts = zeros(a.shape[1], dtype=inner.dtype, device=a.device)
    counts = counts.index_add(0, inner, inner * 0 + 1)  # how many elements each row of b has
    ends = counts.cumsum(0)
    each = counts.index_select(0, columns)
    first = each.cumsum(0) - each
    left = (rows * 0).cumsum(0) + (rows * 0 + 1).cumsum(0) - 1  # 0, 1, 2, ...
    left = left.repeat_interleave(each)
    place = (left * 0 + 1).cumsum(0) - 1 - first.index_select(0, left)
    right = (ends - counts).index_select(0, columns.index_select(0, left)) + place
    values = a._values().index_select(0, left) * b._values().index_select(0, right)
    places = cat(
        [rows.index_select(0, left).unsqueeze(0), outer.index_select(0, right).unsqueeze(0)]
    )
    return SparseTensor(places, values, (a.shape[0], b.shape[1])).coalesce()


def bmm(input: Any, mat2: Any) -> Tensor:
    """The products of a batch of sparse matrices and one of dense ones: that of a sparse matrix of
    blocks and all lines below one another. RuntimeError for shapes that do not fit.
    """
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor):
        raise RuntimeError("bmm_sparse: Tensor 'mat2' must be dense, and 'self' sparse")
    count, rows, columns = (*input.shape, 0, 0, 0)[:3]
    if input.sparse_dim() != 3 or input.dense_dim() or mat2.dim() != 3:
        raise RuntimeError(
            f"bmm: got shapes {list(input.shape)} and {list(mat2.shape)}, want a batch of sparse "
            "matrices, without dense dims, and a batch of matrices"
        )
    if mat2.shape[:2] != (count, columns):
        raise RuntimeError(
            f"bmm: got shapes {list(input.shape)} and {list(mat2.shape)}, want (b, n, m) and "
            "(b, m, p)"
        )
    block, row, column = input._indices().unbind(0)
    places = FUNCTIONS["stack"]([block * rows + row, block * columns + column])
    size = count * rows, count * columns
    blocks = SparseTensor(places, input._values(), size, input.is_coalesced())
    return mm(blocks, mat2.reshape(size[1], -1)).reshape(count, rows, mat2.shape[2])


def spmm(input: Any, mat2: Any) -> Tensor:
    """`sparse.mm` under the name that graph networks call it by."""
    return mm(input, mat2)


def dsmm(input: Any, mat2: Any) -> Tensor:
    """`sparse.mm` under the name that packages for Gaussian processes call it by."""
    return mm(input, mat2)


def smm(input: Any, mat2: Any) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse tensor."""
    return mm(input, mat2).to_sparse()


def addmm(mat: Tensor, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta · mat + alpha · mat1 @ mat2, of a sparse mat1."""
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return (mat if beta == 1 else mat * beta) + product
