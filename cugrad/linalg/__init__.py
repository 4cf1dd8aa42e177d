"""torch.linalg: inverses, systems, factorisations, norms and products of batches of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import LinAlgError
from ..functions.linalg import matmul
from ..functions.out import accepting
from . import products, systems
from .decompositions import cholesky, eigh, eigvalsh, qr, svd, svdvals
from .norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from .products import cross, multi_dot, vecdot
from .products import linalg_diagonal as diagonal
from .systems import det, inv, matrix_exp, matrix_power, pinv, slogdet, solve, solve_triangular

__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm",
    "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "vecdot", "vector_norm",
]  # fmt: skip


def _cholesky(input: Any, upper: bool = False) -> Any:
    """As linalg.cholesky."""
    return cholesky(input, upper=upper)


def _pinverse(input: Any, rcond: float = 1e-15) -> Any:
    """The Moore-Penrose inverse; singular values up to `rcond` times the largest count as zero."""
    return pinv(input, rcond)


# torch's own names for these, which are methods of Tensor too.
METHODS: dict[str, Callable[..., Any]] = {
    "cholesky": _cholesky, "cross": products.cross_of_first, "det": det,
    "diag_embed": products.diag_embed, "inverse": inv, "kron": products.kron,
    "logdet": systems.logdet, "matrix_exp": matrix_exp, "matrix_power": matrix_power,
    "pinverse": _pinverse, "slogdet": slogdet,
}  # fmt: skip
FUNCTIONS = accepting({**METHODS, "tensordot": products.tensordot})
_HERE = {name: globals()[name] for name in __all__}
globals().update(accepting(_HERE, __name__, ("diagonal", "matrix_exp", "vander")))
