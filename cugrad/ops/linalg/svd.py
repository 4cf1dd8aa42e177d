"""Rows of singular values and their vectors.

J. Townsend, "Differentiating the singular value decomposition" (2016).
"""

from __future__ import annotations

from typing import Any

from ..precision import is_complex, sum_of
from ..table import COSTLY, NONE, row
from .matrices import (
    column_of,
    diag,
    diagonal_of,
    diverged,
    first_columns,
    first_rows,
    gaps_of,
    mH,
    off_diagonal,
    real_part,
    row_of,
)


def svd(xp: Any, A: Any, full_matrices: bool = True) -> tuple[Any, Any, Any]:
    try:
        return tuple(xp.linalg.svd(A, full_matrices))
    except xp.linalg.LinAlgError:
        raise diverged("linalg.svd") from None


def _svd_vjp(m: Any, g: Any, U: Any, S: Any, Vh: Any) -> Any:
    """Townsend (2016), with Im(U^H gU - V^H gV) / 2S on the diagonal for complex matrices."""
    k, rows, columns = S.shape[-1], U.shape[-2], Vh.shape[-1]
    U, Vh = first_columns(m, U, k), first_rows(m, Vh, k)
    gU, gS, gVh = first_columns(m, g[0], k), g[1], first_rows(m, g[2], k)
    if gU is None and gVh is None:
        return m.matmul(U * row_of(m, gS), Vh)
    gaps = gaps_of(m, S * S)
    inner = None if gS is None else diag(m, gS)
    turn = beyond = None
    if gU is not None:
        turned = m.matmul(mH(m, U), gU)
        inner = sum_of((turned - mH(m, turned)) / gaps * row_of(m, S), inner)
        turn = turned
        if rows > k:
            outside = (gU - m.matmul(U, turned)) / row_of(m, S)
            beyond = m.matmul(outside, Vh)
    if gVh is not None:
        turned = m.matmul(Vh, mH(m, gVh))
        inner = sum_of(column_of(m, S) * ((turned - mH(m, turned)) / gaps), inner)
        turn = -turned if turn is None else turn - turned
        if columns > k:
            outside = (gVh - m.matmul(mH(m, turned), Vh)) / column_of(m, S)
            beyond = sum_of(m.matmul(U, outside), beyond)
    if is_complex(U):
        diagonal = real_part(m, diagonal_of(m, inner)) * 0 if gS is None else gS
        inner = off_diagonal(m, inner) + diag(
            m, m.imag(diagonal_of(m, turn)) / (S * 2) * 1j + diagonal
        )
    return sum_of(m.matmul(m.matmul(U, inner), Vh), beyond)


def _svd_jvp(m: Any, A_t: Any, U: Any, S: Any, Vh: Any) -> Any:
    """As `_svd_vjp`; the vectors that A does not determine stay where they are, as in PyTorch."""
    k, rows, columns = S.shape[-1], U.shape[-1], Vh.shape[-2]
    U, Vh = first_columns(m, U, k), first_rows(m, Vh, k)
    V, Uh = mH(m, Vh), mH(m, U)
    inner = m.matmul(m.matmul(Uh, A_t), V)
    turned, gaps = mH(m, inner), gaps_of(m, S * S)
    left = off_diagonal(m, inner * row_of(m, S) + column_of(m, S) * turned) / gaps
    right = off_diagonal(m, column_of(m, S) * inner + turned * row_of(m, S)) / gaps
    if is_complex(U):
        turn = diag(m, m.imag(diagonal_of(m, inner)) / (S * 2) * 1j)
        left, right = left + turn, right - turn
    U_t, V_t = m.matmul(U, left), m.matmul(V, right)
    if U.shape[-2] > k:
        outside = m.matmul(A_t, V)
        U_t = U_t + (outside - m.matmul(U, m.matmul(Uh, outside))) / row_of(m, S)
    if V.shape[-2] > k:
        outside = m.matmul(mH(m, A_t), U)
        V_t = V_t + (outside - m.matmul(V, m.matmul(Vh, outside))) / row_of(m, S)
    values = real_part(m, diagonal_of(m, inner))
    return _wider(m, U_t, rows), values, mH(m, _wider(m, V_t, columns))


def _wider(m: Any, x: Any, columns: int) -> Any:
    """With columns of zeros."""
    if x.shape[-1] == columns:
        return x
    whole = (slice(None),) * (len(x.shape) - 1)
    return m.slice_backward(x, (*x.shape[:-1], columns), (*whole, slice(0, x.shape[-1])))


row(
    "linalg_svd", "A", svd, NONE, outputs="U S Vh", holomorphic=False, A=_svd_vjp, jvp=_svd_jvp,
    doc="vectors of equal singular values: inf or nan in the gradient, as PyTorch",
    cost=COSTLY,
)  # fmt: skip


def _svdvals(xp: Any, A: Any) -> Any:
    try:
        return xp.linalg.svd(A, compute_uv=False)
    except xp.linalg.LinAlgError:
        raise diverged("linalg.svdvals") from None


row(
    "linalg_svdvals", "A", _svdvals, NONE, holomorphic=False, node="LinalgSvdBackward0",
    A=lambda m, g, A: _svd_vjp(m, (None, g, None), *m.linalg_svd(A, False)),
    jvp=lambda m, A, A_t: _svd_jvp(m, A_t, *m.linalg_svd(A, False))[1],
    doc="singular values alone; the gradient computes the vectors",
    cost=COSTLY,
)  # fmt: skip
