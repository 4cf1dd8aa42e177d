"""The row of Cholesky factors.

I. Murray, "Differentiation of the Cholesky decomposition" (2016).
"""

from __future__ import annotations

from typing import Any

from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...errors import LinAlgError
from ..table import COSTLY, NONE, row
from .matrices import diag, diagonal_of, failure, hermitian_part, mH, real_part


def _cholesky(xp: Any, self: Any, upper: bool = False) -> Any:
    A = hermitian_part(xp, self)
    L = _factor(xp, A)
    if L is None:
        raise _not_positive(xp, A)
    return L.swapaxes(-1, -2).conj() if upper else L


def _factor(xp: Any, A: Any) -> Any:
    """None where a matrix has no factor: LAPACK takes one with nan for one that has."""
    try:
        L = xp.linalg.cholesky(A)
    except xp.linalg.LinAlgError:
        return None
    return None if bool(plain(xp.isnan(xp.diagonal(L, 0, -2, -1))).any()) else L


def _not_positive(xp: Any, A: Any) -> LinAlgError:
    """The error that names the first matrix without a factor, and its first bad minor."""

    def fails(matrix: Any) -> bool:
        return _factor(xp, matrix) is None

    A, xp = plain(A), backend_of(plain(A)).xp
    matrices = A.reshape(-1, *A.shape[-2:])
    index = next((i for i, matrix in enumerate(matrices) if fails(matrix)), 0)
    low, high = 0, A.shape[-1]  # the minor of order low has a factor, that of order high has none
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(matrices[index, :middle, :middle]) else (middle, high)
    return failure(
        "linalg.cholesky", "The factorization could not be completed because the input is not "
        f"positive-definite (the leading minor of order {high} is not positive-definite).",
        index, A.ndim,
    )  # fmt: skip


def _cholesky_vjp(m: Any, g: Any, result: Any, upper: bool) -> Any:
    """Murray (2016), eq. 10: L^-H Phi(L^H gL) L^-1, Phi the lower triangle, half the diagonal."""
    L, g = (mH(m, result), mH(m, g)) if upper else (result, g)
    product = m.matmul(mH(m, L), g)
    inner = m.tril(product, -1)
    inner = inner + mH(m, inner) + diag(m, real_part(m, diagonal_of(m, product)))
    half = m.linalg_solve_triangular(mH(m, L), inner * 0.5, True)
    return m.linalg_solve_triangular(L, half, False, False)


def _cholesky_jvp(m: Any, self_t: Any, result: Any, upper: bool) -> Any:
    """Murray (2016), eq. 8: dL = L Phi(L^-1 dA L^-H)."""
    L = mH(m, result) if upper else result
    half = m.linalg_solve_triangular(L, (self_t + mH(m, self_t)) * 0.5, False)
    inner = m.linalg_solve_triangular(mH(m, L), half, True, False)
    tangent = m.matmul(L, m.tril(inner, -1) + diag(m, diagonal_of(m, inner) * 0.5))
    return mH(m, tangent) if upper else tangent


row(
    "linalg_cholesky", "self", _cholesky, NONE, holomorphic=False, node="LinalgCholeskyExBackward0",
    self=_cholesky_vjp, jvp=_cholesky_jvp,
    doc="of the Hermitian part (A + A^H) / 2, so that the gradient is Hermitian",
    cost=COSTLY,
)  # fmt: skip
