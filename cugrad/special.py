"""torch.special: functions of mathematics and statistics under SciPy's names."""

from __future__ import annotations

from math import sqrt
from typing import Any

from . import dtypes
from .autograd.record import recorded
from .functions import FUNCTIONS
from .functions.arguments import cast
from .functions.out import accepting
from .ops.dims import canonical_dim
from .tensor import Tensor

__all__ = [
    "entr", "erf", "erfc", "exp2", "expit", "expm1", "log1p", "log_softmax", "logit", "logsumexp",
    "ndtr", "sinc", "softmax", "xlog1py", "xlogy",
]  # fmt: skip

erf, erfc = FUNCTIONS["erf"], FUNCTIONS["erfc"]
exp2, expm1 = FUNCTIONS["exp2"], FUNCTIONS["expm1"]
expit, logit = FUNCTIONS["sigmoid"], FUNCTIONS["logit"]
log1p, logsumexp = FUNCTIONS["log1p"], FUNCTIONS["logsumexp"]
sinc, xlogy = FUNCTIONS["sinc"], FUNCTIONS["xlogy"]


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


def softmax(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
    """exp(input) / sum of it along `dim`; `dtype` casts the input first."""
    dim = canonical_dim(dim, input.dim())
    return recorded.softmax(input if dtype is None else cast(input, dtype), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
    """The logarithm of `softmax`, computed without forming it."""
    dim = canonical_dim(dim, input.dim())
    return recorded.log_softmax(input if dtype is None else cast(input, dtype), dim)


_FUNCTIONS = {name: globals()[name] for name in __all__}
globals().update(accepting(_FUNCTIONS, __name__, ("softmax", "log_softmax")))
