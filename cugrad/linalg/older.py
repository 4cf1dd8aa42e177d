"""torch's own spellings of factorisations that torch.linalg has under newer ones."""

from __future__ import annotations

from typing import Any

from ..autograd.autocast import autocasts
from ..dtypes import promote_types
from ..functions.calls.arguments import array_of
from ..functions.calls.old_order import numbers_first
from ..functions.calls.return_types import return_type
from ..functions.creation import factories as creation
from ..functions.maths.products import affine, outer
from ..functions.maths.reduce import vector_norm
from ..tensor import Tensor
from . import decompositions, factors
from .norms import matrix_norm
from .products import multi_dot

__all__ = [
    "addr", "chain_matmul", "frobenius_norm", "lu", "lu_solve", "nuclear_norm", "qr", "svd",
]  # fmt: skip

Qr = return_type("qr", "Q R")
Svd = return_type("svd", "U S V")


def qr(input: Tensor, some: bool = True) -> Any:
    """As linalg.qr: reduced, or complete unless `some`."""
    return Qr(*decompositions.qr(input, "reduced" if some else "complete"))


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """As linalg.svd with V and not its conjugate transpose; reduced if `some`.

    Unless `compute_uv`, U and V are zeros.
    """
    U, S, Vh = decompositions.svd(input, full_matrices=not some)
    if not compute_uv:
        U, Vh = creation.zeros_like(U), creation.zeros_like(Vh)
    return Svd(U, S, Vh.mH)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """LU, pivots and, with `get_infos`, infos, of linalg.lu_factor."""
    out = factors.lu_factor_ex(A, pivot=pivot)
    return tuple(out) if get_infos else tuple(out[:2])


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """As linalg.lu_solve, with the right side first."""
    return factors.lu_solve(LU_data, LU_pivots, b)


@autocasts
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices in the cheapest order, as linalg.multi_dot."""
    for each in matrices:
        if array_of(each, "chain_matmul").ndim != 2:
            raise RuntimeError(
                f"Tensor dimension is {each.ndim}, expected 2 instead (in chain_matmul)."
            )
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


@autocasts
@numbers_first("beta", "alpha")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * the outer product of two vectors.

    >>> import cugrad as torch
    >>> torch.addr(torch.ones(2, 2), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor([[4., 5.],
            [7., 9.]])
    """
    for position, x in enumerate((input, vec1, vec2), 1):
        array_of(x, "addr", ("input", "vec1", "vec2")[position - 1], position)
    kind = promote_types(promote_types(input.dtype, vec1.dtype), vec2.dtype)  # whatever their dims
    input, vec1, vec2 = (x if x.dtype == kind else x.to(kind) for x in (input, vec1, vec2))
    return affine("addr", input, outer(vec1, vec2), beta, alpha)


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sums of the singular values of the matrices along two dims."""
    return matrix_norm(input, "nuc", dim, keepdim)


def frobenius_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The roots of the sums of squares of the matrices along two dims."""
    return vector_norm(input, 2, dim, keepdim)
