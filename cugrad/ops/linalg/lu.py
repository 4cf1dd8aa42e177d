"""Rows of LU factors and Householder reflectors, in batches, by blocks of columns.

NumPy has no LU of its own, so the elimination is written here: it needs no SciPy, takes batches and
reads nothing from a device.
"""

from __future__ import annotations

from typing import Any

from ..table import COSTLY, NONE, row
from .matrices import columns_from, first_columns, mH

Array = Any
BLOCK = 32  # columns that are eliminated one by one before a product of matrices does the rest


def _swap(xp: Any, a: Array, i: int, pivot: Array, batch: Array) -> None:
    """Rows i and pivot of each matrix change places."""
    first, second = a[:, i].copy(), a[batch, pivot]
    a[batch, pivot] = first
    a[:, i] = second


def _size(xp: Any, x: Array) -> Array:
    """What BLAS compares: of a complex number |re| + |im|."""
    return abs(x.real) + abs(x.imag) if x.dtype.kind == "c" else abs(x)


def _lu(xp: Any, A: Array) -> tuple[Array, Array, Array]:
    """J. Dongarra et al., LAPACK's getrf: P A = L U with rows exchanged by the largest element."""
    rows, columns = A.shape[-2:]
    k, count = min(rows, columns), 1
    for size in A.shape[:-2]:
        count *= size
    a = xp.array(A.reshape(count, rows, columns))
    batch = xp.arange(count)
    pivots = xp.zeros((count, k), dtype="int32")
    info = xp.zeros((count,), dtype="int32")
    one = xp.ones((), A.dtype)
    for start in range(0, k, BLOCK):
        stop = min(start + BLOCK, k)
        for j in range(start, stop):
            pivot = j + xp.argmax(_size(xp, a[:, j:, j]), axis=1)
            pivots[:, j] = pivot + 1
            _swap(xp, a, j, pivot, batch)
            head = a[:, j, j]
            info = xp.where((head == 0) & (info == 0), j + 1, info).astype("int32")
            a[:, j + 1 :, j] /= xp.where(head == 0, one, head)[:, None]
            a[:, j + 1 :, j + 1 : stop] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 : stop]
        if stop < columns:
            for i in range(start + 1, stop):
                a[:, i, stop:] -= xp.matmul(a[:, i, None, start:i], a[:, start:i, stop:])[:, 0]
            a[:, stop:, stop:] -= xp.matmul(a[:, stop:, start:stop], a[:, start:stop, stop:])
    shape = A.shape[:-2]
    return a.reshape(A.shape), pivots.reshape(*shape, k), info.reshape(shape)


def _permutation(xp: Any, LU: Array, pivots: Array) -> Array:
    """P with A = P L U, of LU's dtype, from the exchanges in their order."""
    rows, k = LU.shape[-2], pivots.shape[-1]
    shape, count = pivots.shape[:-1], 1
    for size in shape:
        count *= size
    swaps = pivots.reshape(count, k)
    order = xp.zeros((count, rows), dtype="int64") + xp.arange(rows)
    batch = xp.arange(count)
    for i in range(k):
        _swap(xp, order, i, swaps[:, i] - 1, batch)
    # P[order[i], i] = 1
    P = (xp.arange(rows)[:, None] == order[:, None, :]).astype(LU.dtype)
    return P.reshape(*shape, rows, rows)


row(
    "linalg_permutation", "LU pivots", _permutation, NONE, nondifferentiable="result",
    doc="the matrix of rows exchanged by LAPACK's pivots, counted from 1",
    cost=COSTLY,
)  # fmt: skip


def _below(m: Any, x: Any, k: int) -> Any:
    return m.mT(columns_from(m, m.mT(x), k))


def _top(m: Any, x: Any, k: int) -> Any:
    return m.mT(first_columns(m, m.mT(x), k))


def _lower_solve(m: Any, A: Any, B: Any, left: bool = True) -> Any:
    return m.linalg_solve_triangular(A, B, False, left, True)


def _lu_vjp(m: Any, g: Any, LU: Any, pivots: Any) -> Any:
    """A. Walther, S. Lehmann (2010): P L^-H [tril(L^H gL, -1) + triu(gU U^H)] U^-H, by blocks."""
    P = m.linalg_permutation(LU, pivots)
    rows, columns = LU.shape[-2:]
    k = min(rows, columns)
    square, g1 = (first_columns(m, _top(m, x, k), k) for x in (LU, g))
    Lh, Uh = mH(m, square), mH(m, m.triu(square, 0))  # of Lh only the strict upper triangle counts
    upper = m.matmul(m.triu(g1, 0), Uh)
    # L^H gL for the unit lower L: its diagonal is one, gL has none.
    gL = m.tril(g1, -1)
    lower = m.matmul(m.triu(Lh, 1), gL) + gL
    rest = None
    if columns > k:
        gU2, U2 = columns_from(m, g, k), columns_from(m, LU, k)
        lower = lower - m.matmul(gU2, mH(m, U2))
        rest = m.linalg_solve_triangular(Lh, gU2, True, True, True)
    if rows > k:
        gL2, L2 = _below(m, g, k), _below(m, LU, k)
        upper = upper - m.matmul(mH(m, L2), gL2)
        rest = m.linalg_solve_triangular(Uh, gL2, False, False, False)
    inner = m.tril(lower, -1) + m.triu(upper, 0)
    inner = m.linalg_solve_triangular(Lh, inner, True, True, True)
    inner = m.linalg_solve_triangular(Uh, inner, False, False, False)
    last = len(LU.shape) - 1
    if columns > k:
        inner = m.cat([inner, rest], last)
    elif rows > k:
        inner = m.cat([inner, rest], last - 1)
    return m.matmul(P, inner)


def _lu_jvp(m: Any, A_t: Any, LU: Any, pivots: Any) -> Any:
    tangent = m.matmul(m.mT(m.linalg_permutation(LU, pivots)), A_t)
    rows, columns = LU.shape[-2:]
    k, last = min(rows, columns), len(LU.shape) - 1
    square, first = (first_columns(m, _top(m, x, k), k) for x in (LU, tangent))
    inner = _lower_solve(m, square, first)
    inner = m.linalg_solve_triangular(square, inner, True, False, False)
    lower, upper = m.tril(inner, -1), m.triu(inner, 0)
    L_t = m.matmul(m.tril(square, -1), lower) + lower
    U_t = m.matmul(upper, m.triu(square, 0))
    out = L_t + U_t
    if columns > k:
        moved = columns_from(m, tangent, k) - m.matmul(L_t, columns_from(m, LU, k))
        out = m.cat([out, _lower_solve(m, square, moved)], last)
    if rows > k:
        moved = _below(m, tangent, k) - m.matmul(_below(m, LU, k), U_t)
        moved = m.linalg_solve_triangular(square, moved, True, False, False)
        out = m.cat([out, moved], last - 1)
    return out, None, None


row(
    "linalg_lu_factor_ex", "A", _lu, NONE, outputs="LU pivots info",
    nondifferentiable="pivots info", holomorphic=False, node="LinalgLuFactorExBackward0",
    A=_lu_vjp, jvp=_lu_jvp,
    doc="L below the diagonal of LU, U on and above it; info: the first zero on it, from 1",
    cost=COSTLY,
)  # fmt: skip


def _geqrf(xp: Any, self: Array) -> tuple[Array, Array]:
    """R above and on the diagonal of `a`, the reflectors below it; LAPACK's own, one by one."""
    rows, columns = self.shape[-2:]
    k, count = min(rows, columns), 1
    for size in self.shape[:-2]:
        count *= size
    a = xp.zeros((count, rows, columns), self.dtype)
    tau = xp.zeros((count, k), self.dtype)
    for i, matrix in enumerate(self.reshape(count, rows, columns) if k else ()):
        h, tau[i] = xp.linalg.qr(matrix, "raw")
        a[i] = h.swapaxes(-1, -2)
    return a.reshape(self.shape), tau.reshape(*self.shape[:-2], k)


row("geqrf", "self", _geqrf, NONE, outputs="a tau", nondifferentiable="a tau", cost=COSTLY)
