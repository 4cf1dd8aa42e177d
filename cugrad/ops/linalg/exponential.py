"""The row of the matrix exponential."""

from __future__ import annotations

from typing import Any

from ...backends.batched.arrays import plain
from ..table import COSTLY, NONE, row

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
    solve = getattr(xp.linalg, "unchecked_solve", xp.linalg.solve)
    out = solve(v - u, v + u)
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
