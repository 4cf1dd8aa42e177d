"""torch.linalg's factorisations of matrices."""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..functions.calls.return_types import return_type
from ..tensor import Tensor
from .checks import check_float, float_matrix, hermitian, square

__all__ = ["cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals"]

Eigh = return_type("linalg_eigh", "eigenvalues eigenvectors")
Qr = return_type("linalg_qr", "Q R")
Svd = return_type("linalg_svd", "U S Vh")


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with A = L L^H, lower triangular, or its conjugate transpose where `upper`.

    Only the triangle of A that the result has is read. LinAlgError where a matrix is not
    positive-definite.

    >>> import cugrad as torch
    >>> torch.linalg.cholesky(torch.tensor([[4.0, 2.0], [2.0, 10.0]]))
    tensor([[2., 0.],
            [1., 3.]])
    """
    check_float(A, "linalg.cholesky")
    square(A, "linalg.cholesky")
    return recorded.linalg_cholesky(hermitian(A, bool(upper)), bool(upper))


def _triangle(A: Tensor, UPLO: str, function: str) -> Tensor:
    check_float(A, function)
    square(A, function)
    if UPLO not in ("L", "U", "l", "u"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return hermitian(A, UPLO in "Uu")


def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """The eigenvalues, ascending, and eigenvectors, as columns, of a batch of Hermitian matrices.

    `UPLO` is the triangle that is read. The gradient through the eigenvectors is inf or nan where
    eigenvalues are equal; complex ones have a phase that a loss must not depend on.
    """
    return Eigh(*recorded.linalg_eigh(_triangle(A, UPLO, "linalg.eigh")))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of a batch of Hermitian matrices, ascending."""
    return recorded.linalg_eigvalsh(_triangle(A, UPLO, "linalg.eigvalsh"))


def qr(A: Tensor, mode: str = "reduced") -> Any:
    """Q R = A, where Q has orthonormal columns and R is upper triangular.

    `mode` is "reduced", "complete" (Q square), or "r" (R only). Differentiable where Q is computed
    and not completed by columns that A does not determine.
    """
    float_matrix(A, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )
    return Qr(*recorded.linalg_qr(A, mode))


def _check_driver(function: str, driver: str | None) -> None:
    if driver is not None:
        raise RuntimeError(
            f"torch.linalg.{function}: keyword argument `driver=` is only supported on CUDA inputs "
            f"with cuSOLVER backend in PyTorch; here there is one on each device: got {driver!r}, "
            "want None"
        )


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """U, S and Vh with A = U diag(S) Vh, the singular values S descending.

    `full_matrices` makes U and Vh square; no gradient comes from what that adds. The gradient
    through U and Vh is inf or nan where singular values are equal. `driver` may be None alone:
    there is one on each device; RuntimeError for others.
    """
    _check_driver("svd", driver)
    float_matrix(A, "linalg.svd")
    return Svd(*recorded.linalg_svd(A, bool(full_matrices)))


def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values of a batch of matrices, descending.

    >>> import cugrad as torch
    >>> torch.linalg.svdvals(torch.tensor([[0.0, 3.0], [-4.0, 0.0]]))
    tensor([4., 3.])
    """
    _check_driver("svdvals", driver)
    float_matrix(A, "linalg.svdvals")
    return recorded.linalg_svdvals(A)
