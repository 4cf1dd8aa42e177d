"""The row of systems with a triangular matrix."""

from __future__ import annotations

from typing import Any

from ..precision import sum_of
from ..table import COSTLY, NONE, SAME, row


def _triangle(xp: Any, A: Any, upper: bool, unitriangular: bool) -> Any:
    cut = xp.triu if upper else xp.tril
    if not unitriangular:
        return cut(A)
    return cut(A, 1 if upper else -1) + xp.eye(A.shape[-1], dtype=A.dtype)


def _solve_triangular(
    xp: Any, self: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    A = _triangle(xp, self, upper, unitriangular)
    if not left:
        A, B, upper = A.swapaxes(-1, -2), B.swapaxes(-1, -2), not upper
    quick = getattr(xp.linalg, "solve_triangular", None)
    if quick is not None:
        out = quick(A, B, not upper, unitriangular)
        return out if left else out.swapaxes(-1, -2)
    try:
        out = xp.linalg.solve(A, B)
    except xp.linalg.LinAlgError:  # a zero on a diagonal: infinities, as in PyTorch
        out = xp.array(B)
        n = A.shape[-1]
        for k in range(n - 1, -1, -1) if upper else range(n):
            out[..., k, :] = out[..., k, :] / A[..., k, k, None]
            rest = slice(0, k) if upper else slice(k + 1, None)
            out[..., rest, :] -= A[..., rest, k, None] * out[..., k, None, :]
    return out if left else out.swapaxes(-1, -2)


def _of_triangle(m: Any, x: Any, upper: bool, unitriangular: bool) -> Any:
    return m.triu(x, int(unitriangular)) if upper else m.tril(x, -int(unitriangular))


def _solve_triangular_self(
    m: Any, g: Any, self: Any, result: Any, upper: bool, left: bool, unitriangular: bool
) -> Any:
    grad = m.linalg_solve_triangular(m.mT(self), g, not upper, left, unitriangular)
    product = m.matmul(grad, m.mT(result)) if left else m.matmul(m.mT(result), grad)
    return _of_triangle(m, -product, upper, unitriangular)


def _solve_triangular_jvp(
    m: Any, self: Any, self_t: Any, B_t: Any, result: Any, upper: bool, left: bool,
    unitriangular: bool,
) -> Any:  # fmt: skip
    if self_t is not None:
        inner = _of_triangle(m, self_t, upper, unitriangular)
        product = m.matmul(inner, result) if left else m.matmul(result, inner)
        B_t = sum_of(B_t, -product)
    return m.linalg_solve_triangular(self, B_t, upper, left, unitriangular)


row(
    "linalg_solve_triangular", "self B", _solve_triangular, NONE, promote=SAME,
    self=_solve_triangular_self,
    B=lambda m, g, self, upper, left, unitriangular: m.linalg_solve_triangular(
        m.mT(self), g, not upper, left, unitriangular
    ),
    jvp=_solve_triangular_jvp,
    cost=COSTLY,
)  # fmt: skip
