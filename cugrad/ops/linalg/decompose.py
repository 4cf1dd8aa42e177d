"""Rows of inverses, determinants and factorisations of matrices, in batches.

The last two dims are the matrix. Where a formula is not of the textbook's first pages it cites
M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
algorithmic differentiation" (2008), I. Murray, "Differentiation of the Cholesky decomposition"
(2016), or J. Townsend, "Differentiating the singular value decomposition" (2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...errors import LinAlgError
from ..reductions.reduce import is_complex
from ..table import COSTLY, LINEAR, NONE, SAME, row

Shape = tuple[int, ...]


def mH(m: Any, x: Any) -> Any:
    """The conjugate transpose."""
    return m.conj(m.mT(x)) if is_complex(x) else m.mT(x)


def _real(m: Any, x: Any) -> Any:
    return m.real(x) if is_complex(x) else x


def _diag(m: Any, x: Any) -> Any:
    """A vector as a diagonal matrix."""
    n = len(x.shape)
    return m.diagonal_backward(x, (*x.shape, x.shape[-1]), 0, n - 1, n)


def _diagonal(m: Any, x: Any) -> Any:
    return m.diagonal(x, 0, len(x.shape) - 2, len(x.shape) - 1)


def _off_diagonal(m: Any, x: Any) -> Any:
    return m.tril(x, -1) + m.triu(x, 1)


def _row_of(m: Any, x: Any) -> Any:
    """A vector as a matrix of one row: `a * _row_of(x)` scales the columns of a."""
    return m.unsqueeze(x, len(x.shape) - 1)


def _column_of(m: Any, x: Any) -> Any:
    return m.unsqueeze(x, len(x.shape))


def _plus(a: Any, b: Any) -> Any:
    """The sum of two terms, of which either may be absent."""
    return b if a is None else a if b is None else a + b


# What a singular matrix raises --------------------------------------------------------------------


def _failure(xp: Any, function: str, text: str, index: int, ndim: int) -> LinAlgError:
    which = f"(Batch element {index}): " if ndim > 2 else ""
    return LinAlgError(f"{function}: {which}{text}")


def _singular(xp: Any, function: str, A: Any, text: str) -> LinAlgError:
    """The error that names the first singular matrix of a batch."""
    index = 0
    for index, matrix in enumerate(A.reshape(-1, *A.shape[-2:])):
        try:
            xp.linalg.inv(matrix)
        except xp.linalg.LinAlgError:
            return _failure(xp, function, text.format(_zero_pivot(xp, matrix)), index, A.ndim)
    return _failure(xp, function, text.format(A.shape[-1]), index, A.ndim)


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


# Inverse and linear systems -----------------------------------------------------------------------


def _inv(xp: Any, A: Any, check_errors: bool = True) -> Any:
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


def _solve(xp: Any, A: Any, B: Any, left: bool = True) -> Any:
    try:
        if left:
            return xp.linalg.solve(A, B)
        return xp.linalg.solve(A.swapaxes(-1, -2), B.swapaxes(-1, -2)).swapaxes(-1, -2)
    except xp.linalg.LinAlgError:
        raise _singular(
            xp, "torch.linalg.solve", A, "The solver failed because the input matrix is singular."
        ) from None


def _solve_A(m: Any, g: Any, A: Any, result: Any, left: bool) -> Any:
    grad = m.linalg_solve(m.mT(A), g, left)
    return -m.matmul(grad, m.mT(result)) if left else -m.matmul(m.mT(result), grad)


def _solve_jvp(m: Any, A: Any, A_t: Any, B_t: Any, result: Any, left: bool) -> Any:
    if A_t is not None:
        product = m.matmul(A_t, result) if left else m.matmul(result, A_t)
        B_t = _plus(B_t, -product)
    return m.linalg_solve(A, B_t, left)


row(
    "linalg_solve", "A B", _solve, NONE, promote=SAME, node="LinalgSolveExBackward0",
    A=_solve_A,
    B=lambda m, g, A, left: m.linalg_solve(m.mT(A), g, left),
    jvp=_solve_jvp,
    doc="A X = B, or X A = B unless left, for matrices B and equal batch dims",
    cost=COSTLY,
)  # fmt: skip


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
        B_t = _plus(B_t, -product)
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


# Determinants -------------------------------------------------------------------------------------


def _cofactor(xp: Any, A: Any) -> Any:
    """By the SVD, A = U S V: det(U V) U adj(S) V, which a singular matrix has too (N. Higham)."""
    finite = xp.all(xp.isfinite(A), axis=(-2, -1), keepdims=True)
    u, s, vh = xp.linalg.svd(xp.where(finite, A, xp.zeros((), A.dtype)))  # which fails for nan
    n = A.shape[-1]
    s = xp.where(xp.eye(n, dtype=bool), 1, s[..., None, :])  # row i: all of them but the i-th
    others = xp.prod(s, axis=-1).astype(A.dtype)
    sign = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
    cofactor = sign * xp.matmul(u.conj() * others[..., None, :], vh.conj())
    return xp.where(finite, cofactor, xp.full((), float("nan"), A.dtype))


def _scaled(m: Any, g: Any, x: Any) -> Any:
    """A batch of matrices, each times its number."""
    return _column_of(m, _column_of(m, g)) * x


def _trace(m: Any, x: Any) -> Any:
    return m.sum(_diagonal(m, x), (len(x.shape) - 2,), False)


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
        log_g = _plus(log_g, m.imag(m.conj(sign_g) * sign) * -1j)
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


# Factorisations -----------------------------------------------------------------------------------


def _hermitian(xp: Any, A: Any) -> Any:
    return (A + A.swapaxes(-1, -2).conj()) * 0.5


def _cholesky(xp: Any, self: Any, upper: bool = False) -> Any:
    A = _hermitian(xp, self)
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
    return _failure(
        xp, "linalg.cholesky", "The factorization could not be completed because the input is not "
        f"positive-definite (the leading minor of order {high} is not positive-definite).",
        index, A.ndim,
    )  # fmt: skip


def _cholesky_vjp(m: Any, g: Any, result: Any, upper: bool) -> Any:
    """Murray (2016), eq. 10: L^-H Phi(L^H gL) L^-1, Phi the lower triangle, half the diagonal."""
    L, g = (mH(m, result), mH(m, g)) if upper else (result, g)
    product = m.matmul(mH(m, L), g)
    inner = m.tril(product, -1)
    inner = inner + mH(m, inner) + _diag(m, _real(m, _diagonal(m, product)))
    half = m.linalg_solve_triangular(mH(m, L), inner * 0.5, True)
    return m.linalg_solve_triangular(L, half, False, False)


def _cholesky_jvp(m: Any, self_t: Any, result: Any, upper: bool) -> Any:
    """Murray (2016), eq. 8: dL = L Phi(L^-1 dA L^-H)."""
    L = mH(m, result) if upper else result
    half = m.linalg_solve_triangular(L, (self_t + mH(m, self_t)) * 0.5, False)
    inner = m.linalg_solve_triangular(mH(m, L), half, True, False)
    tangent = m.matmul(L, m.tril(inner, -1) + _diag(m, _diagonal(m, inner) * 0.5))
    return mH(m, tangent) if upper else tangent


row(
    "linalg_cholesky", "self", _cholesky, NONE, holomorphic=False, node="LinalgCholeskyExBackward0",
    self=_cholesky_vjp, jvp=_cholesky_jvp,
    doc="of the Hermitian part (A + A^H) / 2, so that the gradient is Hermitian",
    cost=COSTLY,
)  # fmt: skip


def _eigh(xp: Any, self: Any) -> tuple[Any, Any]:
    try:
        return tuple(xp.linalg.eigh(_hermitian(xp, self)))
    except xp.linalg.LinAlgError:
        raise _diverged("linalg.eigh") from None


def _diverged(function: str) -> LinAlgError:
    return LinAlgError(
        f"{function}: The algorithm failed to converge because the input matrix contained "
        "non-finite values, or is ill-conditioned or has too many repeated eigenvalues."
    )


def _gaps(m: Any, x: Any) -> Any:
    """x_j - x_i, and 1 on the diagonal."""
    return _row_of(m, x) - _column_of(m, x) + _diag(m, m.zero_like(x) + 1)


def _distances(xp: Any, self: Any) -> Any:
    found = self[..., None, :] - self[..., :, None]
    if isinstance(found, np.ndarray):  # on a device nobody looks: the gradient is inf or nan there
        n = found.shape[-1]
        if np.any((found == 0).sum((-1, -2)) > n):
            raise LinAlgError(
                "the gradient of eigenvectors is not defined where eigenvalues are equal, and here "
                f"some of {n} are; use the eigenvalues alone (linalg.eigvalsh, linalg.eigvals), or "
                "a matrix whose eigenvalues differ"
            )
    return found


row(
    "linalg_distances", "self", _distances, LINEAR,
    self=lambda m, g: m.sum(g, (len(g.shape) - 2,)) - m.sum(g, (len(g.shape) - 1,)),
    doc="x_j - x_i of eigenvalues, no two of which may be equal",
    cost=COSTLY,
)  # fmt: skip


def distinct_gaps(m: Any, x: Any) -> Any:
    """`_gaps`, and LinAlgError on the host where two eigenvalues are equal."""
    return m.linalg_distances(x) + _diag(m, m.zero_like(x) + 1)


def _eigh_vjp(m: Any, g: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    """Giles (2008), 3.1: V (diag(gw) + (V^H gV) / (w_j - w_i)) V^H, and its Hermitian part."""
    values_g, vectors_g = g
    inner = None if values_g is None else _diag(m, values_g)
    if vectors_g is not None:
        turned = m.matmul(mH(m, eigenvectors), vectors_g)
        skew = _off_diagonal(m, turned - mH(m, turned)) * 0.5
        inner = _plus(skew / distinct_gaps(m, eigenvalues), inner)
    return m.matmul(_like(m, eigenvectors, inner), mH(m, eigenvectors))


def _like(m: Any, vectors: Any, inner: Any) -> Any:
    """vectors @ inner, where inner may be real although vectors are complex."""
    if is_complex(vectors) and not is_complex(inner):
        inner = inner * (1 + 0j)
    return m.matmul(vectors, inner)


def _eigh_jvp(m: Any, self_t: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    tangent = (self_t + mH(m, self_t)) * 0.5
    inner = m.matmul(m.matmul(mH(m, eigenvectors), tangent), eigenvectors)
    turned = _off_diagonal(m, inner) / _gaps(m, eigenvalues)
    return _real(m, _diagonal(m, inner)), m.matmul(eigenvectors, turned)


row(
    "linalg_eigh", "self", _eigh, NONE, outputs="eigenvalues eigenvectors", holomorphic=False,
    self=_eigh_vjp, jvp=_eigh_jvp,
    doc="of the Hermitian part (A + A^H) / 2; eigenvectors: only of distinct eigenvalues",
    cost=COSTLY,
)  # fmt: skip


def _eigvalsh(xp: Any, self: Any) -> Any:
    try:
        return xp.linalg.eigvalsh(_hermitian(xp, self))
    except xp.linalg.LinAlgError:
        raise _diverged("linalg.eigvalsh") from None


row(
    "linalg_eigvalsh", "self", _eigvalsh, NONE, holomorphic=False, node="LinalgEighBackward0",
    self=lambda m, g, self: _eigh_vjp(m, (g, None), *m.linalg_eigh(self)),
    jvp=lambda m, self, self_t: _eigh_jvp(m, self_t, *m.linalg_eigh(self))[0],
    doc="eigenvalues alone; the gradient computes the eigenvectors",
    cost=COSTLY,
)  # fmt: skip


def _svd(xp: Any, A: Any, full_matrices: bool = True) -> tuple[Any, Any, Any]:
    try:
        return tuple(xp.linalg.svd(A, full_matrices))
    except xp.linalg.LinAlgError:
        raise _diverged("linalg.svd") from None


def _columns(m: Any, x: Any, k: int) -> Any:
    """The first k columns; what lies beyond them is of no use to a gradient."""
    if x is None or x.shape[-1] == k:
        return x
    return m.slice_view(x, (*(slice(None),) * (len(x.shape) - 1), slice(0, k)))


def _rows(m: Any, x: Any, k: int) -> Any:
    return None if x is None else m.mT(_columns(m, m.mT(x), k))


def _svd_vjp(m: Any, g: Any, U: Any, S: Any, Vh: Any) -> Any:
    """Townsend (2016), with Im(U^H gU - V^H gV) / 2S on the diagonal for complex matrices."""
    k, rows, columns = S.shape[-1], U.shape[-2], Vh.shape[-1]
    U, Vh = _columns(m, U, k), _rows(m, Vh, k)
    gU, gS, gVh = _columns(m, g[0], k), g[1], _rows(m, g[2], k)
    if gU is None and gVh is None:
        return m.matmul(U * _row_of(m, gS), Vh)
    gaps = _gaps(m, S * S)
    inner = None if gS is None else _diag(m, gS)
    turn = beyond = None
    if gU is not None:
        turned = m.matmul(mH(m, U), gU)
        inner = _plus((turned - mH(m, turned)) / gaps * _row_of(m, S), inner)
        turn = turned
        if rows > k:
            outside = (gU - m.matmul(U, turned)) / _row_of(m, S)
            beyond = m.matmul(outside, Vh)
    if gVh is not None:
        turned = m.matmul(Vh, mH(m, gVh))
        inner = _plus(_column_of(m, S) * ((turned - mH(m, turned)) / gaps), inner)
        turn = -turned if turn is None else turn - turned
        if columns > k:
            outside = (gVh - m.matmul(mH(m, turned), Vh)) / _column_of(m, S)
            beyond = _plus(m.matmul(U, outside), beyond)
    if is_complex(U):
        diagonal = _real(m, _diagonal(m, inner)) * 0 if gS is None else gS
        inner = _off_diagonal(m, inner) + _diag(
            m, m.imag(_diagonal(m, turn)) / (S * 2) * 1j + diagonal
        )
    return _plus(m.matmul(m.matmul(U, inner), Vh), beyond)


def _svd_jvp(m: Any, A_t: Any, U: Any, S: Any, Vh: Any) -> Any:
    """As `_svd_vjp`; the vectors that A does not determine stay where they are, as in PyTorch."""
    k, rows, columns = S.shape[-1], U.shape[-1], Vh.shape[-2]
    U, Vh = _columns(m, U, k), _rows(m, Vh, k)
    V, Uh = mH(m, Vh), mH(m, U)
    inner = m.matmul(m.matmul(Uh, A_t), V)
    turned, gaps = mH(m, inner), _gaps(m, S * S)
    left = _off_diagonal(m, inner * _row_of(m, S) + _column_of(m, S) * turned) / gaps
    right = _off_diagonal(m, _column_of(m, S) * inner + turned * _row_of(m, S)) / gaps
    if is_complex(U):
        turn = _diag(m, m.imag(_diagonal(m, inner)) / (S * 2) * 1j)
        left, right = left + turn, right - turn
    U_t, V_t = m.matmul(U, left), m.matmul(V, right)
    if U.shape[-2] > k:
        outside = m.matmul(A_t, V)
        U_t = U_t + (outside - m.matmul(U, m.matmul(Uh, outside))) / _row_of(m, S)
    if V.shape[-2] > k:
        outside = m.matmul(mH(m, A_t), U)
        V_t = V_t + (outside - m.matmul(V, m.matmul(Vh, outside))) / _row_of(m, S)
    values = _real(m, _diagonal(m, inner))
    return _wider(m, U_t, rows), values, mH(m, _wider(m, V_t, columns))


def _wider(m: Any, x: Any, columns: int) -> Any:
    """With columns of zeros."""
    if x.shape[-1] == columns:
        return x
    whole = (slice(None),) * (len(x.shape) - 1)
    return m.slice_backward(x, (*x.shape[:-1], columns), (*whole, slice(0, x.shape[-1])))


row(
    "linalg_svd", "A", _svd, NONE, outputs="U S Vh", holomorphic=False, A=_svd_vjp, jvp=_svd_jvp,
    doc="vectors of equal singular values: inf or nan in the gradient, as PyTorch",
    cost=COSTLY,
)  # fmt: skip


def _svdvals(xp: Any, A: Any) -> Any:
    try:
        return xp.linalg.svd(A, compute_uv=False)
    except xp.linalg.LinAlgError:
        raise _diverged("linalg.svdvals") from None


row(
    "linalg_svdvals", "A", _svdvals, NONE, holomorphic=False, node="LinalgSvdBackward0",
    A=lambda m, g, A: _svd_vjp(m, (None, g, None), *m.linalg_svd(A, False)),
    jvp=lambda m, A, A_t: _svd_jvp(m, A_t, *m.linalg_svd(A, False))[1],
    doc="singular values alone; the gradient computes the vectors",
    cost=COSTLY,
)  # fmt: skip


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
    return m.triu(x, 1) + _diag(m, _diagonal(m, x) * 0.5)


def _beyond(m: Any, x: Any, k: int) -> Any:
    """The columns from k on."""
    return m.slice_view(x, (*(slice(None),) * (len(x.shape) - 1), slice(k, None)))


def _qr_vjp(m: Any, g: Any, A_shape: Shape, Q: Any, R: Any, mode: str) -> Any:
    """S. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010): [gQ
    + Q sym(triu(gR R^H - Q^H gQ))] R^-H; a wide A = Q [R1, R2] is A1 = Q R1 beside R2 = Q^H A2."""
    _can_differentiate(A_shape, mode)
    k, (gQ, gR) = A_shape[-2], g
    rest = None
    if k < A_shape[-1]:
        if gR is not None:
            R2, gR2 = _beyond(m, R, k), _beyond(m, gR, k)
            rest = m.matmul(Q, gR2)
            gQ = _plus(gQ, m.matmul(Q, m.matmul(R2, mH(m, gR2))))
        R, gR = _columns(m, R, k), _columns(m, gR, k)
    inner = None if gR is None else m.matmul(gR, mH(m, R))
    if gQ is not None:
        inner = _plus(inner, -m.matmul(mH(m, Q), gQ))
    upper = m.triu(inner, 1)
    inner = upper + mH(m, upper) + _diag(m, _real(m, _diagonal(m, inner)))
    grad = _plus(m.matmul(Q, inner), gQ)
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
    R1, first = (_columns(m, R, k), _columns(m, A_t, k)) if wide else (R, A_t)
    x = m.linalg_solve_triangular(R1, first, True, False)  # dA R^-1
    inner = m.matmul(mH(m, Q), x)
    inner = _half_diagonal(m, inner + mH(m, inner))  # dR R^-1
    Q_t, R_t = x - m.matmul(Q, inner), m.matmul(inner, R1)
    if wide:
        moved = _beyond(m, A_t, k) - m.matmul(Q_t, _beyond(m, R, k))
        R_t = m.cat([R_t, m.matmul(mH(m, Q), moved)], len(A_shape) - 1)
    return Q_t, R_t


row(
    "linalg_qr", "A", _qr, NONE, outputs="Q R", holomorphic=False, A=_qr_vjp, jvp=_qr_jvp,
    cost=COSTLY,
)  # fmt: skip


# The pseudoinverse --------------------------------------------------------------------------------


def _pinv(xp: Any, self: Any, atol: float = 0.0, rtol: float = 0.0, hermitian: bool = False) -> Any:
    if hermitian:
        values, u = _eigh(xp, self)
        vh, size = u.swapaxes(-1, -2).conj(), abs(values)
    else:
        u, values, vh = _svd(xp, self, False)
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
    left, right = m.matmul(m.matmul(gh, P), Ph), m.matmul(Ph, m.matmul(P, gh))
    left = left - m.matmul(self, m.matmul(P, left))
    right = right - m.matmul(m.matmul(right, P), self)
    return left + right - m.matmul(Ph, m.matmul(g, Ph))


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


# Others -------------------------------------------------------------------------------------------


def _cross(xp: Any, self: Any, other: Any, dim: int = -1) -> Any:
    a, b = xp.moveaxis(self, dim, 0), xp.moveaxis(other, dim, 0)
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    return xp.stack(parts, dim)


row(
    "linalg_cross", "self other", _cross, LINEAR, promote=SAME, dense=True,
    self=lambda m, g, other, dim: m.linalg_cross(other, g, dim),
    other=lambda m, g, self, dim: m.linalg_cross(g, self, dim),
    doc="(a x b) . g = a . (b x g)",
)  # fmt: skip

# The coefficients of the [13/13] Pade approximant of exp, N. Higham, "The scaling and squaring
# method for the matrix exponential revisited" (2005), table 2.3; good to norm 5.37 in float64.
PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
THETA = 5.371920351148152


def _matrix_exp(xp: Any, self: Any) -> Any:
    n = self.shape[-1]
    if not self.size:
        return self.copy()
    b, one = [c / PADE[0] for c in PADE], xp.eye(n, dtype=self.dtype)
    size = xp.max(xp.sum(abs(self), -2, None, False), axis=-1)  # the 1-norm of each matrix
    # Each matrix is scaled by itself: squared as often as it was halved.
    halvings = xp.ceil(xp.log2(xp.maximum(size / THETA, 1)))
    most = int(plain(halvings).max()) if bool(plain(xp.isfinite(size)).all()) else 0
    A = self / (2**halvings).astype(size.dtype)[..., None, None] if most else self
    A2 = xp.matmul(A, A)
    A4 = xp.matmul(A2, A2)
    A6 = xp.matmul(A2, A4)
    u = xp.matmul(A6, A6 * b[13] + A4 * b[11] + A2 * b[9])
    u = xp.matmul(A, u + A6 * b[7] + A4 * b[5] + A2 * b[3] + one * b[1])
    v = xp.matmul(A6, A6 * b[12] + A4 * b[10] + A2 * b[8])
    v = v + A6 * b[6] + A4 * b[4] + A2 * b[2] + one * b[0]
    out = xp.linalg.solve(v - u, v + u)
    for done in range(most):
        out = xp.where((halvings > done)[..., None, None], xp.matmul(out, out), out)
    return out


def _matrix_exp_slope(m: Any, direction: Any, A: Any) -> Any:
    """R. Mathias (1996): exp [[A, E], [0, A]] has the derivative of exp(A) along E at its upper
    right."""
    n, last = A.shape[-1], len(A.shape) - 1
    upper = m.cat([A, direction], last)
    lower = m.cat([m.zero_like(A), A], last)
    whole = m.linalg_matrix_exp(m.cat([upper, lower], last - 1))
    return m.slice_view(whole, (*(slice(None),) * (last - 1), slice(0, n), slice(n, None)))


row(
    "linalg_matrix_exp", "self", _matrix_exp, NONE,
    self=lambda m, g, self: _matrix_exp_slope(m, g, m.mT(self)),
    jvp=lambda m, self, self_t: _matrix_exp_slope(m, self_t, self),
    cost=COSTLY,
)  # fmt: skip
