"""torch.special: functions of mathematics and statistics under SciPy's names."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from numbers import Number
from typing import Any

import numpy as np

from . import dtypes
from .autograd.recording.record import recorded
from .functions import FUNCTIONS
from .functions.calls.arguments import array_of, cast, refused
from .functions.calls.out import accepting
from .functions.maths.arithmetic import met
from .ops.dims import canonical_dim
from .ops.special_functions import POLYNOMIALS
from .runtime.absent import explain
from .tensor import Tensor

# Functions of the rows `special_<name>`, whose arguments are PyTorch's as they stand.
_OF_ONE = (
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "erfcx", "i0e", "i1", "i1e",
    "log_ndtr", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "ndtri", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
)  # fmt: skip
_POLYNOMIALS = (
    *POLYNOMIALS, *("shifted_" + name for name in POLYNOMIALS if name.startswith("chebyshev"))
)  # fmt: skip
_NAMED = [
    "digamma", "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc",
    "gammaln", "i0", "log1p", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr",
    "polygamma", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
__all__ = sorted((*_NAMED, *_OF_ONE, *_POLYNOMIALS))

erf, erfc = FUNCTIONS["erf"], FUNCTIONS["erfc"]
exp2, expm1 = FUNCTIONS["exp2"], FUNCTIONS["expm1"]
expit, logit = FUNCTIONS["sigmoid"], FUNCTIONS["logit"]
log1p, logsumexp = FUNCTIONS["log1p"], FUNCTIONS["logsumexp"]
sinc, xlogy = FUNCTIONS["sinc"], FUNCTIONS["xlogy"]
erfinv, i0, round = FUNCTIONS["erfinv"], FUNCTIONS["i0"], FUNCTIONS["round"]
gammaln, digamma = FUNCTIONS["lgamma"], FUNCTIONS["digamma"]
psi, polygamma = digamma, FUNCTIONS["polygamma"]
gammainc, gammaincc = FUNCTIONS["igamma"], FUNCTIONS["igammac"]
multigammaln = FUNCTIONS["mvlgamma"]


def entr(input: Tensor) -> Tensor:
    """The entropy -x log x of each element; 0 at 0, -inf below.

    >>> import cugrad as torch
    >>> torch.special.entr(torch.tensor([0.0, 0.5, -1.0]))
    tensor([0.0000, 0.3466,   -inf])
    """
    return recorded.special_entr(input)


def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log(1 + other), and 0 where `input` is 0 and `other` is not nan."""
    return recorded.special_xlog1py(input, other)


def ndtr(input: Tensor) -> Tensor:
    """The standard normal distribution function.

    >>> import cugrad as torch
    >>> torch.special.ndtr(torch.tensor([0.0, 1.0]))
    tensor([0.5000, 0.8413])
    """
    return recorded.erfc(input * -sqrt(0.5)) * 0.5


def zeta(input: Any, other: Any) -> Tensor:
    """The Hurwitz zeta function, the sum of (k + other) ** -input over k = 0, 1, ...

    Differentiable in `other`; backward raises NotImplementedError where `input` requires grad.

    >>> import cugrad as torch
    >>> torch.special.zeta(torch.tensor([2.0, 4.0]), 1)
    tensor([1.6449, 1.0823])
    """
    for position, (name, x) in enumerate((("input", input), ("other", other)), 1):
        if not isinstance(x, (Number, np.generic)):
            array_of(x, "zeta", name, position)
    result = recorded.special_zeta(*met(input, other))
    return refused(result, (input,), "zeta", "SpecialZetaBackward0")


def _of_row(name: str, doc: str) -> Callable[..., Tensor]:
    row = getattr(recorded, "special_" + name)

    def of_one(input: Tensor) -> Tensor:
        return row(input)

    def of_degree(input: Any, n: Any) -> Tensor:
        return row(input, n)

    call = of_degree if name in _POLYNOMIALS else of_one
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


for _name in _OF_ONE:
    globals()[_name] = _of_row(_name, f"`{_name}`, element by element.")
for _name in _POLYNOMIALS:
    globals()[_name] = _of_row(
        _name, f"`{_name}` of degree `n` at `input`, of which one may be a number; no gradient."
    )


def softmax(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
    """exp(input) / sum of it along `dim`; `dtype` casts the input first."""
    dim = canonical_dim(dim, input.dim())
    return recorded.softmax(input if dtype is None else cast(input, dtype), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
    """The logarithm of `softmax`, computed without forming it."""
    dim = canonical_dim(dim, input.dim())
    return recorded.log_softmax(input if dtype is None else cast(input, dtype), dim)


_FUNCTIONS = {name: globals()[name] for name in __all__}
_TAKE_OUT = _FUNCTIONS.keys() - {"softmax", "log_softmax"}
globals().update(accepting(_FUNCTIONS, _TAKE_OUT, __name__))


explain(__name__)
