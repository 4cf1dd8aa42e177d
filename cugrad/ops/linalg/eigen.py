"""Rows of eigenvalues and eigenvectors of matrices that need not be Hermitian."""

from __future__ import annotations

from typing import Any

from ...backends.batched.arrays import plain
from ..precision import is_complex, sum_of
from ..table import COSTLY, NONE, row
from .eigh import distinct_gaps
from .matrices import (
    diag,
    diagonal_of,
    diverged,
    gaps_of,
    mH,
    off_diagonal,
    real_part,
    row_of,
)

Array = Any


def _eig(xp: Any, self: Array) -> tuple[Array, Array]:
    complex_ = "complex64" if self.dtype in ("float32", "complex64") else "complex128"
    if not bool(plain(xp.isfinite(self)).all()):
        raise RuntimeError(
            "torch.linalg.eig: input tensor should not contain infs or NaNs; check where they "
            "come from with torch.isfinite"
        )
    try:
        values, vectors = xp.linalg.eig(self)
    except xp.linalg.LinAlgError:
        raise diverged("linalg.eig") from None
    return values.astype(complex_), vectors.astype(complex_)


def _like(m: Any, x: Any, self: Any) -> Any:
    return x if is_complex(self) else m.real(x)


def _eig_vjp(m: Any, g: Any, self: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    """C. Boeddeker et al., "On the computation of complex-valued gradients" (2017), 4.77, with the
    vectors' length kept at one: V^-H [diag(gL) + (V^H gV - V^H V Re diag(V^H gV)) / E*] V^H."""
    values_g, vectors_g = g
    Vh = mH(m, eigenvectors)
    inner = None if values_g is None else diag(m, values_g)
    if vectors_g is not None:
        turned = m.matmul(Vh, vectors_g)
        kept = real_part(m, diagonal_of(m, turned)) * (1 + 0j)
        turned = turned - m.matmul(Vh, eigenvectors) * row_of(m, kept)
        turned = off_diagonal(m, turned) / m.conj(distinct_gaps(m, eigenvalues))
        inner = sum_of(turned, inner)
    return _like(m, m.linalg_solve(Vh, m.matmul(inner, Vh), True), self)


def _eig_jvp(m: Any, self_t: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    tangent = self_t if is_complex(self_t) else self_t * (1 + 0j)
    inner = m.linalg_solve(eigenvectors, m.matmul(tangent, eigenvectors), True)
    turned = m.matmul(eigenvectors, off_diagonal(m, inner) / gaps_of(m, eigenvalues))
    along = real_part(m, m.sum(m.conj(eigenvectors) * turned, (len(turned.shape) - 2,), False))
    return diagonal_of(m, inner), turned - eigenvectors * row_of(m, along * (1 + 0j))


row(
    "linalg_eig", "self", _eig, NONE, outputs="eigenvalues eigenvectors", holomorphic=False,
    self=_eig_vjp, jvp=_eig_jvp,
    doc="vectors of length one; equal eigenvalues: inf or nan in the gradient, as PyTorch",
    cost=COSTLY,
)  # fmt: skip


def _eigvals(xp: Any, self: Array) -> Array:
    return _eig(xp, self)[0]


row(
    "linalg_eigvals", "self", _eigvals, NONE, holomorphic=False, node="LinalgEigBackward0",
    self=lambda m, g, self: _eig_vjp(m, (g, None), self, *m.linalg_eig(self)),
    jvp=lambda m, self, self_t: _eig_jvp(m, self_t, *m.linalg_eig(self))[0],
    doc="eigenvalues alone; the gradient computes the eigenvectors",
    cost=COSTLY,
)  # fmt: skip
