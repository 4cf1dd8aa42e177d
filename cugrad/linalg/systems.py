"""torch.linalg's inverses, linear systems, determinants and powers of matrices."""

from __future__ import annotations

import operator
from typing import Any

from ..autograd.recording.record import recorded
from ..dtypes import float32, is_half
from ..functions.calls.arguments import array_of, cast, fresh
from ..functions.calls.return_types import return_type
from ..functions.creation import factories as creation
from ..functions.maths.products import matmul
from ..ops.dims import broadcast_shapes
from ..tensor import Tensor
from .checks import batches_of, check_float, float_matrix, hermitian, square, tolerances

__all__ = [
    "det", "inv", "matrix_exp", "matrix_power", "pinv", "slogdet", "solve", "solve_triangular",
]  # fmt: skip
OF_TORCH = ("logdet",)

Slogdet = return_type("linalg_slogdet", "sign logabsdet")


def inv(A: Tensor) -> Tensor:
    """The inverses of a batch of square matrices; LinAlgError where one is singular.

    >>> import cugrad as torch
    >>> torch.linalg.inv(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    check_float(A, "linalg.inv")
    square(A, "linalg.inv")
    return recorded.linalg_inv(A)


def _check_product(function: str, a: Any, b: Any, left: bool) -> None:
    if a[-1] != b[-2 if left else -1]:
        raise RuntimeError(
            f"{function}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({a[-2]}x{a[-1]} and {b[-2]}x{b[-1]})"
        )


@fresh
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B, or X A = B unless `left`; B is a batch of matrices, or of vectors.

    It is one of vectors when it has one dim, or the shape of A without its last. LinAlgError where
    A is singular.

    >>> import cugrad as torch
    >>> torch.linalg.solve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([1.0, 2.0]))
    tensor([0.5000, 0.5000])
    """
    return solution(A, B, left)


def solution(A: Tensor, B: Tensor, left: bool, check_errors: bool = True) -> Tensor:
    """As solve; without checks no device is waited for."""
    check_float(A, "linalg.solve")
    a, b = square(A, "linalg.solve"), array_of(B, "linalg.solve", "B", 2)
    if a.dtype != b.dtype:
        raise RuntimeError(
            "linalg.solve: Expected A and B to have the same dtype, but found A of type "
            f"{A.dtype} and B of type {B.dtype} instead"
        )
    vector = b.ndim == 1 or b.shape == a.shape[:-1]
    if not b.ndim:
        raise RuntimeError("linalg.solve: The input tensor B must have at least 2 dimensions.")
    if vector:
        B = recorded.unsqueeze(B, b.ndim)
    _check_product("linalg.solve", a.shape, B._array.shape, left)
    X = recorded.linalg_solve(*batches_of(A, B), left, check_errors)
    return recorded.squeeze(X, (X._array.ndim - 1,)) if vector else X


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A X = B (X A = B unless `left`), from one triangle of A alone.

    `unitriangular` takes the diagonal for ones. A zero on the diagonal gives infinities.
    """
    function = "linalg.solve_triangular"
    check_float(A, function)
    a, b = square(A, function), array_of(B, function, "B", 2)
    if b.ndim < 2:
        raise RuntimeError(f"{function}: The input tensor B must have at least 2 dimensions.")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{function}: Expected A and B to have the same dtype, got {A.dtype} and {B.dtype}"
        )
    _check_product(function, a.shape, b.shape, left)
    return recorded.linalg_solve_triangular(
        *batches_of(A, B), bool(upper), bool(left), bool(unitriangular)
    )


def det(A: Tensor) -> Tensor:
    """The determinants of a batch of square matrices.

    Its gradient is right for singular matrices too; only the gradient of that wants an inverse.

    >>> import cugrad as torch
    >>> torch.linalg.det(torch.tensor([[2.0, 1.0], [0.0, 3.0]]))
    tensor(6.)
    """
    check_float(A, "linalg.det")
    square(A, "linalg.det")
    return recorded.linalg_det(A)


def slogdet(A: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its size: 0 and -inf where A is singular."""
    check_float(A, "linalg.slogdet")
    square(A, "linalg.slogdet")
    return Slogdet(*recorded.linalg_slogdet(A))


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant, nan where that is negative."""
    sign, size = slogdet(input)
    if sign._array.dtype.kind == "c":
        return recorded.log(sign) + size
    return recorded.where(recorded.lt(sign, 0), float("nan"), size)


def matrix_power(A: Tensor, n: int) -> Tensor:
    """The product of n matrices A, by repeated squaring; of -n inverses where n is negative."""
    array = square(A, "linalg.matrix_power")
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(
            f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}"
        ) from None
    if n == 0:
        one = creation.eye(array.shape[-1], dtype=A.dtype, device=A.device)
        return recorded.copy(A, one)  # of A, so that it has a gradient: zero
    if n < 0:
        A, n = inv(A), -n
    power = None
    while True:
        if n & 1:
            power = A if power is None else matmul(power, A)
        n >>= 1
        if not n:
            break
        A = matmul(A, A)
    assert power is not None
    return power.clone() if power is A and array is A._array else power


def matrix_exp(A: Tensor) -> Tensor:
    """The exponentials of a batch of square matrices, the sum of A^k / k!.

    Half precision is computed in float32.
    """
    array = array_of(A, "linalg.matrix_exp", "A")
    if is_half(array.dtype):
        return cast(matrix_exp(cast(A, float32)), A.dtype)
    check_float(A, "linalg.matrix_exp")
    square(A, "linalg.matrix_exp")
    return recorded.linalg_matrix_exp(A)


def pinv(
    A: Tensor,
    rcond: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:
    """The Moore-Penrose inverses of a batch of matrices.

    Singular values up to max(atol, rtol * the largest) count as zero; rtol is max(m, n) times the
    dtype's epsilon unless it or a positive atol is given. `rcond` is the old name of rtol. Tensors
    have one for each matrix, and broadcast with the batch.
    """
    array = float_matrix(A, "linalg.pinv")
    limits = tolerances(array, atol, rcond if rtol is None else rtol)
    if hermitian:
        square(A, "linalg.pinv")
        A = _lower(A)
    for limit in limits:
        if isinstance(limit, Tensor) and limit.dim():
            batch = broadcast_shapes(tuple(A.shape[:-2]), tuple(limit.shape))
            A = recorded.expand(A, (*batch, *A.shape[-2:]))
    arrays = [x._array[..., None] if isinstance(x, Tensor) else x for x in limits]
    return recorded.linalg_pinv(A, *arrays, bool(hermitian))


def _lower(A: Tensor) -> Tensor:
    return hermitian(A, upper=False)
