"""torch.linalg's LU factors, Householder reflectors and general eigenvalues."""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..errors import LinAlgError
from ..functions.calls.arguments import array_of, fresh, refused
from ..functions.calls.return_types import return_type
from ..functions.creation import factories as creation
from ..functions.maths.products import matmul
from ..tensor import Tensor
from .checks import batches_of, check_float, float_matrix, matrix, mH, square

__all__ = [
    "eig", "eigvals", "householder_product", "lu", "lu_factor", "lu_factor_ex", "lu_solve",
]  # fmt: skip
OF_TORCH = ("geqrf", "lu_unpack", "ormqr")

Eig = return_type("linalg_eig", "eigenvalues eigenvectors")
Geqrf = return_type("geqrf", "a tau")
Lu = return_type("linalg_lu", "P L U")
LuFactor = return_type("linalg_lu_factor", "LU pivots")
LuFactorEx = return_type("linalg_lu_factor_ex", "LU pivots info")
LuUnpack = return_type("lu_unpack", "P L U")


def eig(A: Tensor) -> Any:
    """The eigenvalues and eigenvectors, as columns of length one, of a batch of square matrices.

    Both are complex. Vectors have a phase that a loss must not depend on; their gradient is inf or
    nan where eigenvalues are equal.

    >>> import cugrad as torch
    >>> torch.linalg.eig(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.imag.abs()
    tensor([1., 1.])
    """
    check_float(A, "linalg.eig")
    square(A, "linalg.eig")
    return Eig(*recorded.linalg_eig(A))


def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of a batch of square matrices, complex and in no order."""
    check_float(A, "linalg.eigvals")
    square(A, "linalg.eigvals")
    return recorded.linalg_eigvals(A)


def _with_pivots(function: str, A: Tensor, pivot: bool) -> Any:
    float_matrix(A, function)
    if not pivot:
        raise RuntimeError(
            f"{function}: LU without pivoting is not implemented; leave out pivot=False"
        )
    return recorded.linalg_lu_factor_ex(A)


def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L below the diagonal and U above it in one matrix, and the rows exchanged, from 1.

    >>> import cugrad as torch
    >>> torch.linalg.lu_factor(torch.tensor([[1.0, 2.0], [4.0, 4.0]]))
    torch.return_types.linalg_lu_factor(
    LU=tensor([[4.0000, 4.0000],
            [0.2500, 1.0000]]),
    pivots=tensor([2, 2], dtype=torch.int32))
    """
    LU, pivots, _ = _with_pivots("linalg.lu_factor", A, pivot)
    return LuFactor(LU, pivots)


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """As lu_factor, with the index from 1 of the first zero on U's diagonal, or 0."""
    LU, pivots, info = _with_pivots("linalg.lu_factor_ex", A, pivot)
    if check_errors and bool(recorded.any(recorded.ne(info, 0))):
        raise LinAlgError(
            "linalg.lu_factor_ex: U is singular: a diagonal element is zero, so it cannot be used "
            "to solve a system; check_errors=False returns it with info"
        )
    return LuFactorEx(LU, pivots, info)


def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """P, L and U with A = P L U, P a permutation, L of unit lower and U of upper triangle."""
    LU, pivots, _ = _with_pivots("linalg.lu", A, pivot)
    return Lu(recorded.linalg_permutation(LU, pivots), *_triangles(LU))


def _triangles(LU: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = LU.shape[-2:]
    k = min(rows, columns)
    one = creation.eye(rows, k, dtype=LU.dtype, device=LU.device)
    return recorded.tril(LU[..., :k], -1) + one, recorded.triu(LU[..., :k, :], 0)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """P, L and U of what lu_factor returned; what is not unpacked is empty."""
    array = matrix(LU_data, "torch.lu_unpack", "LU_data")
    pivots = array_of(LU_pivots, "torch.lu_unpack", "LU_pivots", 2)
    if unpack_pivots and pivots.dtype != "int32":
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype."
            f" Got {LU_pivots.dtype}; use what torch.linalg.lu_factor returned"
        )
    if unpack_pivots and pivots.shape != (*array.shape[:-2], min(array.shape[-2:])):
        raise RuntimeError(
            f"torch.lu_unpack: got LU_pivots of shape {tuple(pivots.shape)} for LU_data of shape "
            f"{tuple(array.shape)}, want one pivot for each column of L"
        )
    empty = creation.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    P = recorded.linalg_permutation(LU_data, LU_pivots) if unpack_pivots else empty
    return LuUnpack(P, *(_triangles(LU_data) if unpack_data else (empty, empty)))


@fresh
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B from A's lu_factor; X A = B unless `left`, and A^H where `adjoint`."""
    function = "linalg.lu_solve"
    check_float(LU, function)
    a, b = square(LU, function), array_of(B, function, "B", 3)
    if b.ndim < 2:
        raise RuntimeError(f"{function}: The input tensor B must have at least 2 dimensions.")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{function}: Expected LU and B to have the same dtype, got {LU.dtype} and {B.dtype}"
        )
    p = array_of(pivots, function, "pivots", 2)
    if p.dtype != "int32":
        raise RuntimeError(
            f"{function}: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}"
        )
    if p.shape != a.shape[:-1]:
        raise RuntimeError(
            f"{function}: Number of pivots per batch should be same as the dimension of the matrix,"
            f" got {tuple(p.shape)} for LU of shape {tuple(a.shape)}"
        )
    if a.shape[-1] != b.shape[-2 if left else -1]:
        raise RuntimeError(
            f"{function}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({a.shape[-2]}x{a.shape[-1]} and "
            f"{b.shape[-2]}x{b.shape[-1]})"
        )
    P = recorded.linalg_permutation(LU, pivots)
    if not left:  # X A = B is A^H X^H = B^H
        return mH(_solve_left(LU, P, mH(B), not adjoint))
    return _solve_left(LU, P, B, adjoint)


def _solve_left(LU: Tensor, P: Tensor, B: Tensor, adjoint: bool) -> Tensor:
    if not adjoint:
        LU, B = batches_of(LU, matmul(recorded.mT(P), B))
        y = recorded.linalg_solve_triangular(LU, B, False, True, True)
        return recorded.linalg_solve_triangular(LU, y, True, True, False)
    LU, B = batches_of(mH(LU), B)
    y = recorded.linalg_solve_triangular(LU, B, False, True, False)
    return matmul(P, recorded.linalg_solve_triangular(LU, y, True, True, True))


# Householder reflectors ---------------------------------------------------------------------------


def geqrf(input: Tensor) -> Any:
    """The QR factors as LAPACK packs them: R, below it the reflectors, and their factors tau.

    It has no gradient, as in PyTorch: to ask for it is a NotImplementedError. linalg.qr has.
    """
    check_float(input, "geqrf")
    matrix(input, "torch.geqrf", "input")
    packed = recorded.geqrf(input)
    return Geqrf(*(refused(x, (input,), "geqrf", "GeqrfBackward0") for x in packed))


def _check_reflectors(function: str, A: Tensor, tau: Tensor, of: str) -> None:
    check_float(A, function)
    a, t = matrix(A, function, of), array_of(tau, function, "tau", 2)
    if a.dtype != t.dtype:
        raise RuntimeError(f"{function}: tau dtype {tau.dtype} does not match {of} dtype {A.dtype}")
    if t.ndim != a.ndim - 1 or t.shape[:-1] != a.shape[:-2]:
        raise RuntimeError(
            f"{function}: Expected batch dimensions of tau to be equal to {of}.shape[:-2], got tau "
            f"of shape {tuple(t.shape)} and {of} of shape {tuple(a.shape)}"
        )
    if t.shape[-1] > a.shape[-1]:
        raise RuntimeError(
            f"{function}: {of}.shape[-1] must be greater than or equal to tau.shape[-1], got "
            f"{a.shape[-1]} and {t.shape[-1]}"
        )


def _compact(A: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """R. Schreiber, C. Van Loan (1989): H1 H2 ... = I - V T V^H. It is V, and T V^H.

    T^-1 = diag(1 / tau) + the upper triangle of V^H V without its diagonal.
    """
    k = tau.shape[-1]
    one = creation.eye(A.shape[-2], k, dtype=A.dtype, device=A.device)
    V = recorded.tril(A[..., :k], -1) + one
    Vh = mH(V)
    scale = recorded.unsqueeze(tau, tau._array.ndim)
    inner = scale * recorded.triu(matmul(Vh, V), 1)
    return V, recorded.linalg_solve_triangular(inner, scale * Vh, True, True, True)


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflectors I - tau v v^H that geqrf returned."""
    function = "torch.linalg.householder_product"
    _check_reflectors(function, A, tau, "input")
    rows, columns = A.shape[-2:]
    if rows < columns:
        raise RuntimeError(
            f"{function}: input.shape[-2] must be greater than or equal to input.shape[-1], got "
            f"{rows} and {columns}"
        )
    V, TVh = _compact(A, tau)
    one = creation.eye(rows, columns, dtype=A.dtype, device=A.device)
    return one - matmul(V, TVh[..., :columns])


def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q other, where Q is the square product of geqrf's reflectors.

    other Q unless `left`, and Q^H for Q where `transpose`.
    """
    function = "torch.ormqr"
    _check_reflectors(function, input, tau, "input")
    c = matrix(other, function, "other")
    if c.dtype != input._array.dtype:
        raise RuntimeError(
            f"{function}: Expected input and other to have the same dtype, but input has dtype "
            f"{input.dtype} and other has dtype {other.dtype}"
        )
    if c.shape[-2 if left else -1] != input.shape[-2] or (
        c.ndim != input.ndim or c.shape[:-2] != tuple(input.shape[:-2])
    ):
        raise RuntimeError(
            f"{function}: other.shape[{-2 if left else -1}] must be equal to input.shape[-2], and "
            f"their batches to each other, got {tuple(c.shape)} and {tuple(input.shape)}"
        )
    V, TVh = _compact(input, tau)
    if transpose:
        V, TVh = mH(TVh), mH(V)
    if left:
        return other - matmul(V, matmul(TVh, other))
    return other - matmul(matmul(other, V), TVh)
