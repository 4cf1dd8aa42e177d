"""What formulas of matrices share: transposes, diagonals, columns, and what a failure raises."""

from __future__ import annotations

from typing import Any

from ...errors import LinAlgError
from ..precision import is_complex


def mH(m: Any, x: Any) -> Any:
    """The conjugate transpose."""
    return m.conj(m.mT(x)) if is_complex(x) else m.mT(x)


def real_part(m: Any, x: Any) -> Any:
    return m.real(x) if is_complex(x) else x


def diag(m: Any, x: Any) -> Any:
    """A vector as a diagonal matrix."""
    n = len(x.shape)
    return m.diagonal_backward(x, (*x.shape, x.shape[-1]), 0, n - 1, n)


def diagonal_of(m: Any, x: Any) -> Any:
    return m.diagonal(x, 0, len(x.shape) - 2, len(x.shape) - 1)


def off_diagonal(m: Any, x: Any) -> Any:
    return m.tril(x, -1) + m.triu(x, 1)


def row_of(m: Any, x: Any) -> Any:
    """A vector as a matrix of one row: `a * row_of(x)` scales the columns of a."""
    return m.unsqueeze(x, len(x.shape) - 1)


def column_of(m: Any, x: Any) -> Any:
    return m.unsqueeze(x, len(x.shape))


def failure(function: str, text: str, index: int, ndim: int) -> LinAlgError:
    which = f"(Batch element {index}): " if ndim > 2 else ""
    return LinAlgError(f"{function}: {which}{text}")


def hermitian_part(xp: Any, A: Any) -> Any:
    return (A + A.swapaxes(-1, -2).conj()) * 0.5


def diverged(function: str) -> LinAlgError:
    return LinAlgError(
        f"{function}: The algorithm failed to converge because the input matrix contained "
        "non-finite values, or is ill-conditioned or has too many repeated eigenvalues."
    )


def gaps_of(m: Any, x: Any) -> Any:
    """x_j - x_i, and 1 on the diagonal."""
    return row_of(m, x) - column_of(m, x) + diag(m, m.zero_like(x) + 1)


def times(m: Any, vectors: Any, inner: Any) -> Any:
    """vectors @ inner, where inner may be real although vectors are complex."""
    if is_complex(vectors) and not is_complex(inner):
        inner = inner * (1 + 0j)
    return m.matmul(vectors, inner)


def first_columns(m: Any, x: Any, k: int) -> Any:
    """The first k columns; what lies beyond them is of no use to a gradient."""
    if x is None or x.shape[-1] == k:
        return x
    return m.slice_view(x, (*(slice(None),) * (len(x.shape) - 1), slice(0, k)))


def first_rows(m: Any, x: Any, k: int) -> Any:
    return None if x is None else m.mT(first_columns(m, m.mT(x), k))


def columns_from(m: Any, x: Any, k: int) -> Any:
    """The columns from k on."""
    return m.slice_view(x, (*(slice(None),) * (len(x.shape) - 1), slice(k, None)))
