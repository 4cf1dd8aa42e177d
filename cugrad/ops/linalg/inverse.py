"""Rows of inverses, of systems of equations, and of the pseudoinverse."""

from __future__ import annotations

from typing import Any

from ...errors import LinAlgError
from ..precision import sum_of
from ..table import COSTLY, NONE, SAME, row
from .eigh import eigh
from .matrices import failure, mH
from .svd import svd


def _singular(xp: Any, function: str, A: Any, text: str) -> LinAlgError:
    """The error that names the first singular matrix of a batch."""
    index = 0
    for index, matrix in enumerate(A.reshape(-1, *A.shape[-2:])):
        try:
            xp.linalg.inv(matrix)
        except xp.linalg.LinAlgError:
            return failure(function, text.format(_zero_pivot(xp, matrix)), index, A.ndim)
    return failure(function, text.format(A.shape[-1]), index, A.ndim)


def _zero_pivot(xp: Any, matrix: Any) -> int:
    """Which diagonal element of U in P A = L U is zero, counted from 1."""
    u, n = matrix.copy(), len(matrix)
    for k in range(n):
        pivot = k + int(xp.argmax(abs(u[k:, k])))
        if not bool(u[pivot, k]):
            return k + 1
        u[[k, pivot]] = u[[pivot, k]]
        u[k + 1 :, k:] -= (u[k + 1 :, k] / u[k, k])[:, None] * u[k, k:]
    return n


def _inv(xp: Any, A: Any, check_errors: bool = True) -> Any:
    quick = None if check_errors else getattr(xp.linalg, "unchecked_inv", None)
    if quick is not None:  # nothing waits
        out = quick(A)
        bad = xp.any(~xp.isfinite(out), axis=(-2, -1), keepdims=True)
        return xp.where(bad, xp.full((), float("nan"), A.dtype), out)
    try:
        return xp.linalg.inv(A)
    except xp.linalg.LinAlgError:
        pass
    if check_errors:
        raise _singular(
            xp, "linalg.inv", A, "The diagonal element {} is zero, the inversion could not be "
            "completed because the input matrix is singular."
        )  # fmt: skip
    out = xp.full(A.shape, float("nan"), A.dtype)
    matrices, inverses = A.reshape(-1, *A.shape[-2:]), out.reshape(-1, *A.shape[-2:])
    for i in range(len(matrices)):
        try:
            inverses[i] = xp.linalg.inv(matrices[i])
        except xp.linalg.LinAlgError:
            pass  # this one has none
    return out


row(
    "linalg_inv", "A", _inv, NONE, node="LinalgInvExBackward0",
    A=lambda m, g, result: -m.matmul(m.matmul(m.mT(result), g), m.mT(result)),
    jvp=lambda m, A_t, result: -m.matmul(m.matmul(result, A_t), result),
    doc="d(A^-1) = -A^-1 dA A^-1; with check_errors=False a singular matrix gives nan",
    cost=COSTLY,
)  # fmt: skip


def _solve(xp: Any, A: Any, B: Any, left: bool = True, check_errors: bool = True) -> Any:
    solve = xp.linalg.solve
    if not check_errors:
        solve = getattr(xp.linalg, "unchecked_solve", solve)
    try:
        if left:
            return solve(A, B)
        return solve(A.swapaxes(-1, -2), B.swapaxes(-1, -2)).swapaxes(-1, -2)
    except xp.linalg.LinAlgError:
        raise _singular(
            xp, "torch.linalg.solve", A, "The solver failed because the input matrix is singular."
        ) from None


def _solve_A(m: Any, g: Any, A: Any, result: Any, left: bool) -> Any:
    grad = m.linalg_solve(m.mT(A), g, left, False)  # A has been found to be regular
    return -m.matmul(grad, m.mT(result)) if left else -m.matmul(m.mT(result), grad)


def _solve_jvp(m: Any, A: Any, A_t: Any, B_t: Any, result: Any, left: bool) -> Any:
    if A_t is not None:
        product = m.matmul(A_t, result) if left else m.matmul(result, A_t)
        B_t = sum_of(B_t, -product)
    return m.linalg_solve(A, B_t, left, False)


row(
    "linalg_solve", "A B", _solve, NONE, promote=SAME, node="LinalgSolveExBackward0",
    A=_solve_A,
    B=lambda m, g, A, left: m.linalg_solve(m.mT(A), g, left, False),
    jvp=_solve_jvp,
    doc="A X = B, or X A = B unless left, for matrices B and equal batch dims",
    cost=COSTLY,
)  # fmt: skip


def _pinv(xp: Any, self: Any, atol: float = 0.0, rtol: float = 0.0, hermitian: bool = False) -> Any:
    if hermitian:
        values, u = eigh(xp, self)
        vh, size = u.swapaxes(-1, -2).conj(), abs(values)
    else:
        u, values, vh = svd(xp, self, False)
        size = values
    if not size.shape[-1]:
        return xp.zeros((*self.shape[:-2], self.shape[-1], self.shape[-2]), self.dtype)
    keep = size > xp.maximum(xp.max(size, axis=-1, keepdims=True) * rtol, atol)
    inverse = xp.where(keep, 1 / xp.where(keep, values, 1), 0).astype(values.dtype)
    scaled = vh.swapaxes(-1, -2).conj() * inverse[..., None, :]
    return xp.matmul(scaled, u.swapaxes(-1, -2).conj())


def _pinv_vjp(m: Any, g: Any, self: Any, result: Any) -> Any:
    P, gh = result, mH(m, g)
    Ph = mH(m, P)
    # The projections first: what they leave is small beside either term.
    k = m.matmul(gh, P)
    left = m.matmul(k, Ph)
    left = left - m.matmul(m.matmul(self, P), left)
    right = m.matmul(m.matmul(Ph, P), gh - m.matmul(k, self))
    return left + right - mH(m, m.matmul(P, k))


def _pinv_jvp(m: Any, self: Any, self_t: Any, result: Any) -> Any:
    P, th = result, mH(m, self_t)
    Ph = mH(m, P)
    left, right = m.matmul(P, m.matmul(Ph, th)), m.matmul(m.matmul(th, Ph), P)
    left = left - m.matmul(m.matmul(left, self), P)
    right = right - m.matmul(P, m.matmul(self, right))
    return left + right - m.matmul(P, m.matmul(self_t, P))


row(
    "linalg_pinv", "self", _pinv, NONE, holomorphic=False, node="LinalgPinvBackward0",
    self=_pinv_vjp, jvp=_pinv_jvp,
    doc="G. Golub, V. Pereyra (1973): dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P",
    cost=COSTLY,
)  # fmt: skip
