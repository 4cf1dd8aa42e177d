"""torch.linalg: inverses, systems, factorisations, norms and products of batches of matrices.

The rows stand in `cugrad/ops/linalg`; these functions check arguments and call them. `checks.py`
has what is asked of matrices, `products.py` is the simplest: begin there. `older.py` has the
functions that PyTorch keeps in `torch` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.autocast import POLICIES, autocasts
from ..errors import LinAlgError
from ..functions.calls.out import accepting
from ..functions.maths.inplace import in_place
from ..runtime.absent import explain
from . import (
    decompositions,
    distances,
    factors,
    least_squares,
    norms,
    older,
    products,
    systems,
)
from .decompositions import *
from .factors import *
from .least_squares import *
from .norms import *
from .products import *
from .systems import *

# A file's `__all__` names its functions of torch.linalg, its `OF_TORCH` those of torch itself.
__all__ = ["LinAlgError"]
__all__ += decompositions.__all__
__all__ += factors.__all__
__all__ += least_squares.__all__
__all__ += norms.__all__
__all__ += products.__all__
__all__ += systems.__all__


def _cholesky(input: Any, upper: bool = False) -> Any:
    """As linalg.cholesky."""
    return decompositions.cholesky(input, upper=upper)


def _pinverse(input: Any, rcond: float = 1e-15) -> Any:
    """The Moore-Penrose inverse; singular values up to `rcond` times the largest count as zero."""
    return systems.pinv(input, rcond)


def _cast(functions: dict[str, Any]) -> dict[str, Any]:
    """Those that autocast runs in float32 on a CPU know it."""
    policies = POLICIES["cpu"]
    return {name: autocasts(f, name) if name in policies else f for name, f in functions.items()}


# torch's own names for these, which are methods of Tensor too.
METHODS: dict[str, Callable[..., Any]] = {
    "addr": older.addr, "cholesky": _cholesky,
    "cholesky_inverse": least_squares.cholesky_inverse,
    "cholesky_solve": least_squares.cholesky_solve, "cross": products.cross_of_first,
    "det": systems.det, "geqrf": factors.geqrf, "inverse": systems.inv,
    "kron": products.kron, "logdet": systems.logdet, "lu": older.lu, "lu_solve": older.lu_solve,
    "matrix_exp": systems.matrix_exp, "matrix_power": systems.matrix_power,
    "orgqr": factors.householder_product, "ormqr": factors.ormqr, "pinverse": _pinverse,
    "qr": older.qr, "slogdet": systems.slogdet, "svd": older.svd,
    "triangular_solve": least_squares.triangular_solve,
}  # fmt: skip
METHODS = _cast(METHODS)
_OF_TORCH = {
    **METHODS, **{name: getattr(distances, name) for name in distances.__all__},
    "chain_matmul": older.chain_matmul, "frobenius_norm": older.frobenius_norm,
    "nuclear_norm": older.nuclear_norm,
    **_cast({name: getattr(file, name) for file in (factors, least_squares, products, systems)
             for name in file.OF_TORCH}),
}  # fmt: skip
TAKES_OUT = _OF_TORCH.keys() - {
    "bilinear", "cdist", "det", "logdet", "lu", "matrix_exp", "pca_lowrank", "pdist", "pinverse",
    "svd_lowrank",
}  # fmt: skip
FUNCTIONS = accepting(_OF_TORCH, TAKES_OUT)
METHODS["addr_"] = in_place(older.addr)
_HERE = _cast({name: globals()[name] for name in __all__})
_OUT_HERE = _HERE.keys() - {"diagonal", "matrix_exp", "vander"}
globals().update(accepting(_HERE, _OUT_HERE, __name__))


explain(__name__)
