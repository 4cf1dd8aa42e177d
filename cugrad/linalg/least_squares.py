"""torch.linalg's least squares, checked inverses, and systems of tensors and of factors."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..autograd.mode import no_grad
from ..autograd.recording.record import recorded
from ..backends import backend_of
from ..dtypes import int32, int64
from ..errors import LinAlgError
from ..functions.calls.arguments import array_of, fresh
from ..functions.calls.return_types import return_type
from ..functions.creation import factories as creation
from ..functions.maths.products import matmul
from ..functions.shapes.copies import stack, tril
from ..functions.shapes.views import permute, reshape
from ..ops.dims import broadcast_shapes, canonical_dim, int_tuple
from ..tensor import Tensor
from .checks import batches_of, check_float, float_matrix, mH, square
from .decompositions import cholesky, svdvals
from .norms import matrix_rank
from .systems import inv, solution, solve, solve_triangular

__all__ = ["cholesky_ex", "inv_ex", "lstsq", "solve_ex", "tensorinv", "tensorsolve", "vander"]
OF_TORCH = ("cholesky_inverse", "cholesky_solve", "triangular_solve")

CholeskyEx = return_type("linalg_cholesky_ex", "L info")
InvEx = return_type("linalg_inv_ex", "inverse info")
Lstsq = return_type("linalg_lstsq", "solution residuals rank singular_values")
SolveEx = return_type("linalg_solve_ex", "result info")
TriangularSolve = return_type("triangular_solve", "solution cloned_coefficient")

DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@fresh
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """X that makes |A X - B| least, and itself least among those, by A's singular values.

    `driver` is LAPACK's: all of them compute the same X here; "gels" returns no rank, and only
    "gelsd" and "gelss" return singular values. Singular values up to `rcond` times the largest
    count as zero. The residuals are there for full rank and more rows than columns, except with
    "gelsy", the default.

    >>> import cugrad as torch
    >>> X = torch.linalg.lstsq(torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0], [3.0]])).solution
    >>> torch.allclose(X, torch.tensor([[2.0]]))
    True
    """
    function = "torch.linalg.lstsq"
    a = float_matrix(A, function)
    b = array_of(B, function, "B", 2)
    if b.ndim < 1:
        raise RuntimeError(f"{function}: other must have at least 1 dimension.")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{function}: Expected input and other to have the same dtype, but got input's dtype "
            f"{A.dtype} and other's dtype {B.dtype}"
        )
    driver = (driver or "gelsy").lower()
    if driver not in DRIVERS:
        raise RuntimeError(
            f"{function}: parameter `driver` should be one of {DRIVERS}, but provided: {driver}"
        )
    vector = b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]
    if not vector and b.ndim < 2:
        raise RuntimeError(
            f"{function}: input.dim() must be greater or equal to other.dim() and "
            f"(input.dim() - other.dim()) <= 1, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if vector:
        B = recorded.unsqueeze(B, b.ndim)
    rows, columns = a.shape[-2:]
    if B.shape[-2] != rows:
        raise RuntimeError(
            f"{function}: input.size(-2) should match other.size({-1 if vector else -2}), got "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    own = A  # of which ranks and singular values are told, before it meets B's batch
    A, B = batches_of(A, B)
    if rcond is None:
        rcond = float(np.finfo(a.dtype).eps) * max(rows, columns)
    inverse = recorded.linalg_pinv(A, 0.0, max(float(rcond), 0.0), False)
    X = matmul(inverse, B)
    # One step of refinement, recorded too (A. Bjorck, Numerical Methods for Least Squares Problems,
    # 1996, 2.9): where A is ill-conditioned the gradient keeps two more digits by it.
    X = X + matmul(inverse, B - matmul(A, X))
    residuals = reshape(X, (-1,))[:0]  # of X, so that it has a gradient: none
    if a.dtype.kind == "c":
        residuals = recorded.real(residuals)
    values, ranks = residuals.detach(), creation.empty(0, dtype=int64, device=A.device)
    if driver != "gels":
        ranks = matrix_rank(own, rtol=rcond)
    if driver in ("gelsd", "gelss"):
        values = svdvals(own.detach())
    if rows > columns and driver != "gelsy":
        full = driver == "gels" or bool(recorded.all(recorded.eq(ranks, columns)))
        if full:
            beyond = recorded.abs(matmul(A, X) - B)
            residuals = recorded.sum(beyond * beyond, (beyond._array.ndim - 2,))
    if vector:
        X = recorded.squeeze(X, (X._array.ndim - 1,))
    return Lstsq(X, residuals, ranks, values)


def _named(error: LinAlgError, function: str) -> LinAlgError:
    """The error of a function as that of its `_ex`."""
    return LinAlgError(str(error).replace(f"{function}:", f"{function}_ex:", 1))


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """As inv, with info: 0, or which diagonal element of U in P A = L U is zero, from 1."""
    check_float(A, "linalg.inv_ex")
    square(A, "linalg.inv_ex")
    try:
        inverse = recorded.linalg_inv(A, bool(check_errors))
    except LinAlgError as error:
        raise _named(error, "linalg.inv") from None
    return InvEx(inverse, recorded.linalg_lu_factor_ex(A.detach())[2])


@fresh
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """As solve, with info: 0, or which diagonal element of U in P A = L U is zero, from 1.

    Where A is singular the result is nan.
    """
    try:
        result = solution(A, B, left, check_errors)
        info = recorded.linalg_lu_factor_ex(A.detach())[2]
        if not check_errors and hasattr(backend_of(A._array).xp.linalg, "unchecked_solve"):
            return SolveEx(_blanked(A, result, info), info)
    except LinAlgError as error:
        if check_errors:
            raise _named(error, "linalg.solve") from None
        info = recorded.linalg_lu_factor_ex(A.detach())[2]
        bad = reshape(recorded.ne(info, 0), (*info.shape, 1, 1))
        one = creation.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        result = _blanked(A, solve(recorded.where(bad, one, A), B, left=left), info)
    return SolveEx(result, info)


def _blanked(A: Tensor, result: Tensor, info: Tensor) -> Tensor:
    """A result of A, nan where A is singular."""
    dims = 1 if result._array.ndim == A._array.ndim - 1 else 2
    bad = reshape(recorded.ne(info, 0), (*info.shape, *(1,) * dims))
    return recorded.masked_fill(result, bad, float("nan"))


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """As cholesky, with info: 0, or the order of the leading minor that is not positive-definite.

    Of a matrix that has none it is as far as LAPACK's potf2 comes, without a gradient: the columns
    before that order, the pivot that is not positive, and the matrix behind it.
    """
    shape = A.shape[:-2]
    try:
        L = cholesky(A, upper=upper)
        return CholeskyEx(L, creation.zeros(shape, dtype=int32, device=A.device))
    except LinAlgError as error:
        if check_errors:
            raise _named(error, "linalg.cholesky") from None
    n = A.shape[-1]
    with no_grad():
        matrices = reshape(A, (prod(shape), n, n)).unbind(0)
        orders = [_bad_minor(x, upper) for x in matrices]
        begun = [_begun(x, k - 1, upper) if k else x for x, k in zip(matrices, orders)]
        parts = reshape(stack(begun), A.shape)
    info = reshape(creation.tensor(orders, dtype=int32, device=A.device), shape)
    bad = reshape(recorded.ne(info, 0), (*shape, 1, 1))
    one = creation.eye(n, dtype=A.dtype, device=A.device)
    L = cholesky(recorded.where(bad, one, A), upper=upper)
    return CholeskyEx(recorded.where(bad, parts, L), info)


def _begun(A: Tensor, k: int, upper: bool) -> Tensor:
    """The factor of a matrix of which `k` columns have one, and the next has not."""
    if upper:
        return mH(_begun(mH(A), k, False))
    L = tril(A)
    if k:
        L[:k, :k] = cholesky(A[:k, :k])
        L[k:, :k] = mH(solve_triangular(L[:k, :k], mH(A[k:, :k]), upper=False))
        L[k, k] -= recorded.sum(L[k, :k].abs() ** 2)
    return L


def _bad_minor(A: Tensor, upper: bool) -> int:
    """The order of the first leading minor without a factor, by halving; 0 where all have one."""
    low, high = 0, A.shape[-1] + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cholesky(A[:middle, :middle], upper=upper)
            low = middle
        except LinAlgError:
            high = middle
    return high if high <= A.shape[-1] else 0


# Tensors as matrices ------------------------------------------------------------------------------


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A for `tensordot`: its first `ind` dims as rows, the others as columns."""
    shape = array_of(A, "linalg.tensorinv", "A").shape
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    rows, columns = shape[:ind], shape[ind:]
    if prod(rows) != prod(columns):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {prod(columns)} != {prod(rows)}"
        )
    inverse = inv(reshape(A, (prod(rows), prod(columns))))
    return reshape(inverse, (*columns, *rows))


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B, after moving A's `dims` to its end."""
    ndim = array_of(A, "linalg.tensorsolve", "A").ndim
    b = array_of(B, "linalg.tensorsolve", "B", 2).shape
    if dims is not None:
        moved = [canonical_dim(d, ndim) for d in int_tuple(dims, "dims")]
        A = permute(A, [d for d in range(ndim) if d not in moved] + moved)
    shape = tuple(A.shape[len(b) :])
    if prod(shape) != prod(b):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {prod(shape)} != {prod(b)}"
        )
    X = solve(reshape(A, (prod(b), prod(shape))), reshape(B, (prod(b),)))
    return reshape(X, shape)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The matrices whose columns are the powers 0 to N - 1 of vectors x.

    >>> import cugrad as torch
    >>> torch.linalg.vander(torch.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    array = array_of(x, "linalg.vander", "x")
    if not array.ndim:
        return vander(recorded.unsqueeze(x, 0), N=N)
    size = array.shape[-1]
    N = size if N is None else N
    if N <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {N}")
    column = recorded.unsqueeze(x, array.ndim)
    if array.dtype.kind == "b":
        column = x.long().unsqueeze(-1)
    first = creation.ones((*array.shape, 1), dtype=column.dtype, device=x.device)
    powers = recorded.cumprod(recorded.expand(column, (*array.shape, N - 1)), array.ndim)
    return recorded.cat([first, powers], array.ndim)


# Systems of given factors -------------------------------------------------------------------------


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B from A's Cholesky factor, L of A = L L^H or, where `upper`, of A = L^H L."""
    b = array_of(B, "cholesky_solve", "B")
    check_float(L, "cholesky_solve")
    a = array_of(L, "cholesky_solve", "L", 2)
    if b.ndim < 2 or a.ndim < 2:
        raise RuntimeError(
            "cholesky_solve: B and L should have at least 2 dimensions, but have "
            f"{b.ndim} and {a.ndim}"
        )
    square(L, "cholesky_solve")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"cholesky_solve: Incompatible matrix sizes: each L is {a.shape[-2]} by {a.shape[-1]} "
            f"but each B is {b.shape[-2]} by {b.shape[-1]}"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(f"cholesky_solve: expected one dtype, got {B.dtype} and {L.dtype}")
    L, B = batches_of(L, B)
    lower = mH(L) if upper else L
    y = recorded.linalg_solve_triangular(lower, B, False, True, False)
    return recorded.linalg_solve_triangular(mH(lower), y, True, True, False)


def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix of which `input` is the Cholesky factor."""
    check_float(input, "cholesky_inverse")
    square(input, "cholesky_inverse")
    one = creation.eye(input.shape[-1], dtype=input.dtype, device=input.device)
    return cholesky_solve(one, input, upper)


def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    """X with A X = b (A^T X = b where `transpose`) from a triangle of A, and a copy of A.

    linalg.solve_triangular is the newer name, with the arguments the other way round.
    """
    right = array_of(b, "triangular_solve", "b")
    check_float(A, "triangular_solve")
    a = array_of(A, "triangular_solve", "A", 2)
    if right.ndim < 2 or a.ndim < 2:
        raise RuntimeError(
            "torch.triangular_solve: Expected b and A to have at least 2 dimensions, but they have "
            f"{right.ndim} and {a.ndim} dimensions instead"
        )
    square(A, "triangular_solve")
    if a.shape[-1] != right.shape[-2]:
        raise RuntimeError(
            f"triangular_solve: Incompatible matrix sizes: each A is {a.shape[-2]} by "
            f"{a.shape[-1]} but each b is {right.shape[-2]} by {right.shape[-1]}"
        )
    broadcast_shapes(a.shape[:-2], right.shape[:-2])
    factor, b = batches_of(A, b)
    copied = factor.clone()
    if transpose:
        factor, upper = recorded.mT(factor), not upper
    X = recorded.linalg_solve_triangular(factor, b, bool(upper), True, bool(unitriangular))
    return TriangularSolve(X, copied)
