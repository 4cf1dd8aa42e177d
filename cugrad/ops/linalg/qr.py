"""The row of QR factors."""

from __future__ import annotations

from typing import Any

from ..precision import sum_of
from ..table import COSTLY, NONE, row
from .matrices import columns_from, diag, diagonal_of, first_columns, mH, real_part

Shape = tuple[int, ...]


def _qr(xp: Any, A: Any, mode: str = "reduced") -> tuple[Any, Any]:
    if mode == "r":
        return xp.zeros((0,), A.dtype), xp.linalg.qr(A, "r")
    return tuple(xp.linalg.qr(A, mode))


def _can_differentiate(A_shape: Shape, mode: str) -> None:
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
            "Please use linalg.qr(A, mode='reduced') if you are going to require gradients."
        )
    if mode == "complete" and A_shape[-2] > A_shape[-1]:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        )


def _half_diagonal(m: Any, x: Any) -> Any:
    """The upper triangle of a Hermitian matrix with half of its diagonal."""
    return m.triu(x, 1) + diag(m, diagonal_of(m, x) * 0.5)


def _qr_vjp(m: Any, g: Any, A_shape: Shape, Q: Any, R: Any, mode: str) -> Any:
    """S. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010): [gQ
    + Q sym(triu(gR R^H - Q^H gQ))] R^-H; a wide A = Q [R1, R2] is A1 = Q R1 beside R2 = Q^H A2."""
    _can_differentiate(A_shape, mode)
    k, (gQ, gR) = A_shape[-2], g
    rest = None
    if k < A_shape[-1]:
        if gR is not None:
            R2, gR2 = columns_from(m, R, k), columns_from(m, gR, k)
            rest = m.matmul(Q, gR2)
            gQ = sum_of(gQ, m.matmul(Q, m.matmul(R2, mH(m, gR2))))
        R, gR = first_columns(m, R, k), first_columns(m, gR, k)
    inner = None if gR is None else m.matmul(gR, mH(m, R))
    if gQ is not None:
        inner = sum_of(inner, -m.matmul(mH(m, Q), gQ))
    upper = m.triu(inner, 1)
    inner = upper + mH(m, upper) + diag(m, real_part(m, diagonal_of(m, inner)))
    grad = sum_of(m.matmul(Q, inner), gQ)
    grad = m.linalg_solve_triangular(mH(m, R), grad, False, False)
    if k >= A_shape[-1]:
        return grad
    shape = (*A_shape[:-1], k)
    whole = (*(slice(None),) * (len(shape) - 1),)
    grad = m.slice_backward(grad, A_shape, (*whole, slice(0, k)))
    return grad if rest is None else grad + m.slice_backward(
        rest, A_shape, (*whole, slice(k, None))
    )  # fmt: skip


def _qr_jvp(m: Any, A_t: Any, A_shape: Shape, Q: Any, R: Any, mode: str) -> Any:
    _can_differentiate(A_shape, mode)
    k = A_shape[-2]
    wide = k < A_shape[-1]
    R1, first = (first_columns(m, R, k), first_columns(m, A_t, k)) if wide else (R, A_t)
    x = m.linalg_solve_triangular(R1, first, True, False)  # dA R^-1
    inner = m.matmul(mH(m, Q), x)
    inner = _half_diagonal(m, inner + mH(m, inner))  # dR R^-1
    Q_t, R_t = x - m.matmul(Q, inner), m.matmul(inner, R1)
    if wide:
        moved = columns_from(m, A_t, k) - m.matmul(Q_t, columns_from(m, R, k))
        R_t = m.cat([R_t, m.matmul(mH(m, Q), moved)], len(A_shape) - 1)
    return Q_t, R_t


row(
    "linalg_qr", "A", _qr, NONE, outputs="Q R", holomorphic=False, A=_qr_vjp, jvp=_qr_jvp,
    cost=COSTLY,
)  # fmt: skip
