"""Rows of determinants, of their logarithms, and of cofactors."""

from __future__ import annotations

from typing import Any

from ..precision import is_complex, sum_of
from ..table import COSTLY, NONE, row
from .matrices import column_of, diagonal_of, mH


def _cofactor(xp: Any, A: Any) -> Any:
    """By the SVD, A = U S V: det(U V) U adj(S) V, which a singular matrix has too (N. Higham)."""
    finite = xp.all(xp.isfinite(A), axis=(-2, -1), keepdims=True)
    svd = getattr(xp.linalg, "unchecked_svd", xp.linalg.svd)
    u, s, vh = svd(xp.where(finite, A, xp.zeros((), A.dtype)))  # which fails for nan
    n = A.shape[-1]
    s = xp.where(xp.eye(n, dtype=bool), 1, s[..., None, :])  # row i: all of them but the i-th
    others = xp.prod(s, axis=-1).astype(A.dtype)
    sign = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
    cofactor = sign * xp.matmul(u.conj() * others[..., None, :], vh.conj())
    return xp.where(finite, cofactor, xp.full((), float("nan"), A.dtype))


def _scaled(m: Any, g: Any, x: Any) -> Any:
    """A batch of matrices, each times its number."""
    return column_of(m, column_of(m, g)) * x


def _trace(m: Any, x: Any) -> Any:
    return m.sum(diagonal_of(m, x), (len(x.shape) - 2,), False)


def _product_trace(m: Any, a: Any, b: Any) -> Any:
    """tr(A^T B)."""
    return m.sum(a * b, (len(a.shape) - 2, len(a.shape) - 1), False)


def _cofactor_slope(m: Any, g: Any, A: Any, result: Any) -> Any:
    """C = det(A) A^-T, so dC = tr(C^T dA) A^-T - A^-T dA^T C; its adjoint has the same form."""
    inverse = m.mT(m.linalg_inv(A))
    turned = m.matmul(m.matmul(inverse, m.mT(g)), result)
    return _scaled(m, _product_trace(m, inverse, g), result) - turned


row(
    "linalg_cofactor", "A", _cofactor, NONE,
    A=_cofactor_slope,
    jvp=lambda m, A, A_t, result: _cofactor_slope(m, A_t, A, result),
    doc="the gradient of the determinant, whose own gradient wants a matrix that is not singular",
    cost=COSTLY,
)  # fmt: skip


row(
    "linalg_det", "A", lambda xp, A: xp.linalg.det(A), NONE,
    A=lambda m, g, A: _scaled(m, g, m.linalg_cofactor(A)),
    jvp=lambda m, A, A_t: _product_trace(m, m.linalg_cofactor(A), A_t),
    doc="d det(A) = tr(C^T dA), C the matrix of cofactors, also where A is singular",
    cost=COSTLY,
)  # fmt: skip


def _slogdet(xp: Any, A: Any) -> tuple[Any, Any]:
    sign, size = xp.linalg.slogdet(A)
    return xp.where(xp.isnan(size), xp.zeros((), A.dtype), sign), size


def _slogdet_vjp(m: Any, g: Any, A: Any, sign: Any) -> Any:
    sign_g, log_g = g
    if is_complex(A) and sign_g is not None:
        log_g = sum_of(log_g, m.imag(m.conj(sign_g) * sign) * -1j)
    if log_g is None:  # the sign of a real matrix is constant
        return m.zero_like(A)
    return _scaled(m, log_g, mH(m, m.linalg_inv(A, False)))


def _slogdet_jvp(m: Any, A: Any, A_t: Any, sign: Any) -> Any:
    slope = _trace(m, m.matmul(m.linalg_inv(A, False), A_t))  # of log det(A)
    if is_complex(A):
        return sign * (m.imag(slope) * 1j), m.real(slope)
    return m.zero_like(sign), slope


row(
    "linalg_slogdet", "A", _slogdet, NONE,
    outputs="sign logabsdet", holomorphic=False, A=_slogdet_vjp, jvp=_slogdet_jvp,
    doc="d log det(A) = tr(A^-1 dA): the real part is logabsdet's, the imaginary one turns sign",
    cost=COSTLY,
)  # fmt: skip
