"""Rows of eigenvalues and eigenvectors of Hermitian matrices.

M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
algorithmic differentiation" (2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import LinAlgError
from ..precision import sum_of
from ..table import COSTLY, LINEAR, NONE, row
from .matrices import (
    diag,
    diagonal_of,
    diverged,
    gaps_of,
    hermitian_part,
    mH,
    off_diagonal,
    real_part,
    times,
)


def eigh(xp: Any, self: Any) -> tuple[Any, Any]:
    try:
        return tuple(xp.linalg.eigh(hermitian_part(xp, self)))
    except xp.linalg.LinAlgError:
        raise diverged("linalg.eigh") from None


def _distances(xp: Any, self: Any) -> Any:
    distances = self[..., None, :] - self[..., :, None]
    if isinstance(distances, np.ndarray):  # no check on a device: the gradient is inf or nan
        n = distances.shape[-1]
        if np.any((distances == 0).sum((-1, -2)) > n):
            raise LinAlgError(
                "the gradient of eigenvectors is not defined where eigenvalues are equal, and here "
                f"some of {n} are; use the eigenvalues alone (linalg.eigvalsh, linalg.eigvals), or "
                "a matrix whose eigenvalues differ"
            )
    return distances


row(
    "linalg_distances", "self", _distances, LINEAR,
    self=lambda m, g: m.sum(g, (len(g.shape) - 2,)) - m.sum(g, (len(g.shape) - 1,)),
    doc="x_j - x_i of eigenvalues, no two of which may be equal",
    cost=COSTLY,
)  # fmt: skip


def distinct_gaps(m: Any, x: Any) -> Any:
    """`gaps_of`, and LinAlgError on the host where two eigenvalues are equal."""
    return m.linalg_distances(x) + diag(m, m.zero_like(x) + 1)


def _eigh_vjp(m: Any, g: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    """Giles (2008), 3.1: V (diag(gw) + (V^H gV) / (w_j - w_i)) V^H, and its Hermitian part."""
    values_g, vectors_g = g
    inner = None if values_g is None else diag(m, values_g)
    if vectors_g is not None:
        turned = m.matmul(mH(m, eigenvectors), vectors_g)
        skew = off_diagonal(m, turned - mH(m, turned)) * 0.5
        inner = sum_of(skew / distinct_gaps(m, eigenvalues), inner)
    return m.matmul(times(m, eigenvectors, inner), mH(m, eigenvectors))


def _eigh_jvp(m: Any, self_t: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    tangent = (self_t + mH(m, self_t)) * 0.5
    inner = m.matmul(m.matmul(mH(m, eigenvectors), tangent), eigenvectors)
    turned = off_diagonal(m, inner) / gaps_of(m, eigenvalues)
    return real_part(m, diagonal_of(m, inner)), m.matmul(eigenvectors, turned)


row(
    "linalg_eigh", "self", eigh, NONE, outputs="eigenvalues eigenvectors", holomorphic=False,
    self=_eigh_vjp, jvp=_eigh_jvp,
    doc="of the Hermitian part (A + A^H) / 2; eigenvectors: only of distinct eigenvalues",
    cost=COSTLY,
)  # fmt: skip


def _eigvalsh(xp: Any, self: Any) -> Any:
    try:
        return xp.linalg.eigvalsh(hermitian_part(xp, self))
    except xp.linalg.LinAlgError:
        raise diverged("linalg.eigvalsh") from None


row(
    "linalg_eigvalsh", "self", _eigvalsh, NONE, holomorphic=False, node="LinalgEighBackward0",
    self=lambda m, g, self: _eigh_vjp(m, (g, None), *m.linalg_eigh(self)),
    jvp=lambda m, self, self_t: _eigh_jvp(m, self_t, *m.linalg_eigh(self))[0],
    doc="eigenvalues alone; the gradient computes the eigenvectors",
    cost=COSTLY,
)  # fmt: skip
