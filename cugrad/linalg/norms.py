"""torch.linalg's norms of vectors and matrices, condition numbers and ranks."""

from __future__ import annotations

from math import inf
from typing import Any

from ..autograd.recording.record import recorded
from ..functions.calls.arguments import array_of, cast, fresh
from ..functions.maths.reduce import vector_norm
from ..functions.shapes.views import movedim
from ..ops.dims import canonical_dim, int_tuple
from ..tensor import Tensor
from .checks import check_float, float_matrix, hermitian, matrix, square, tolerances
from .decompositions import svdvals

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]


@fresh
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norms of the matrices that lie along two dims.

    `ord`: "fro" (the root of the sum of squares), "nuc" (the sum of the singular values), 2 and -2
    (the largest and least singular value), 1 and -1 (of the sums of columns), inf and -inf (of
    rows).

    >>> import cugrad as torch
    >>> torch.linalg.matrix_norm(torch.tensor([[3.0, 0.0], [4.0, 0.0]]), 1)
    tensor(7.)
    """
    function = "linalg.matrix_norm"
    if ord not in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
        raise RuntimeError(f"{function}: Order {ord} not supported.")
    ndim = matrix(A, function).ndim
    if dtype is not None:
        A = cast(A, dtype)
    array = array_of(A, function)
    if array.dtype.kind in "biu":
        check_float(A, function)
    dims = int_tuple(dim, "dim")
    if len(dims) != 2:
        raise RuntimeError(f"{function}: dim must be a 2-tuple. Got {dims}")
    first, second = (canonical_dim(d, ndim) for d in dims)
    if first == second:
        raise RuntimeError(f"{function}: dims must be different. Got {dims}")
    if ord == "fro":
        return vector_norm(A, 2, dims, keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(movedim(A, (first, second), (-2, -1)))
        last = (values._array.ndim - 1,)
        if ord == "nuc":
            out = recorded.sum(values, last)
        else:
            out = _extreme(values, ord == 2, last[0], False)
        for d in sorted((first, second)) if keepdim else ():
            out = recorded.unsqueeze(out, d)
        return out
    along, across = (first, second) if ord in (1, -1) else (second, first)
    sums = vector_norm(A, 1, along, True)
    out = _extreme(sums, ord in (1, inf), across, True)
    return out if keepdim else recorded.squeeze(out, tuple(sorted((first, second))))


def _extreme(x: Tensor, largest: bool, dim: int, keepdim: bool) -> Tensor:
    """The largest or least along a dim: of no norms the largest is a constant 0, none is least."""
    if x._array.shape[dim]:
        return (recorded.amax if largest else recorded.amin)(x, (dim,), keepdim)
    if not largest:
        raise IndexError(f"amin(): Expected reduction dim {dim} to have non-zero size.")
    return recorded.sum(x.detach(), (dim,), keepdim)


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """`vector_norm` of all elements or along one dim, `matrix_norm` along two.

    Without `dim`, a given `ord` takes a vector or a matrix for what it is; without `ord` it is the
    root of the sum of squares.
    """
    ndim = array_of(A, "linalg.norm", "A").ndim
    dims = None if dim is None else int_tuple(dim, "dim")
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is specified, it must be of length 1 or 2. Got "
            f"{list(dims)}; linalg.vector_norm takes any number"
        )
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, dtype=dtype)
    if dims is None and ndim not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
            f"Got {ndim}D."
        )
    if isinstance(ord, str) or (dims is None and ndim == 2) or (dims is not None and len(dims) > 1):
        return matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)


def cond(A: Tensor, p: float | str | None = None) -> Tensor:
    """The condition numbers of a batch of matrices: |A| |A^-1| in the norm `p`, inf where singular.

    `p` is an order of `matrix_norm`; None means 2. With 2 and -2, which are ratios of singular
    values, matrices need not be square.
    """
    if p not in (None, "fro", "nuc", 1, -1, 2, -2, inf, -inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    array = float_matrix(A, "linalg.cond")
    if not array.size:
        return recorded.sum(svdvals(A.detach()), (array.ndim - 2,))
    if p in (None, 2, -2):
        values = svdvals(A)
        last = values._array.ndim - 1
        most = recorded.select(values, last, 0)
        least = recorded.select(values, last, values._array.shape[-1] - 1)
        return least / most if p == -2 else most / least
    square(A, f"linalg.cond(ord={p})")
    inverse = recorded.linalg_inv(A, False)  # nan where there is none
    dims = (array.ndim - 2, array.ndim - 1)
    singular = recorded.any(recorded.isnan(inverse), dims, True)
    inverse = recorded.masked_fill(inverse, singular, 0)
    product = matrix_norm(A, p) * matrix_norm(inverse, p)
    return recorded.masked_fill(product, recorded.squeeze(singular, dims), inf)


def matrix_rank(
    A: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:
    """How many singular values are above max(atol, rtol * the largest).

    rtol is max(m, n) times the dtype's epsilon unless it or a positive atol is given; `tol` is the
    old name of atol. Tensors have one for each matrix, and broadcast with the batch. `hermitian`
    reads the lower triangle.

    >>> import cugrad as torch
    >>> torch.linalg.matrix_rank(torch.tensor([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    """
    array = float_matrix(A, "linalg.matrix_rank")
    atol, rtol = tolerances(array, tol if atol is None else atol, rtol)
    A = A.detach()
    if hermitian:
        square(A, "linalg.matrix_rank")
        A = _lower(A)
    values = svdvals(A)
    last = (values._array.ndim - 1,)
    if not values._array.shape[-1]:
        return recorded.sum(recorded.gt(values, 0), last)
    atol, rtol = (x.unsqueeze(-1) if isinstance(x, Tensor) else x for x in (atol, rtol))
    least = recorded.amax(values, last, True) * rtol
    least = recorded.maximum(least, atol)
    return recorded.gt(values, least).sum(-1)


def _lower(A: Tensor) -> Tensor:
    return hermitian(A, upper=False)
