"""Functions that PyTorch composes of elementwise ops, or of ops on neighbours."""

from __future__ import annotations

from math import log, pi
from typing import Any

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...ops.dims import canonical_dim
from ...ops.table import TABLE
from ...tensor import Tensor
from ..calls.arguments import array_of, cast
from ..creation.factories import ones_like
from ..shapes.copies import cat
from ..shapes.layouts import contiguous
from ..shapes.views import diagonal, narrow
from .arithmetic import sub
from .reduce import sum

__all__ = ["diff", "float_power", "isreal", "ldexp", "mvlgamma", "positive", "rsub", "trace"]
TAKES_OUT = frozenset(__all__) - {"isreal", "positive", "rsub", "trace"}


def positive(input: Tensor) -> Tensor:
    """The tensor itself; RuntimeError for bool tensors."""
    if array_of(input, "positive").dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def rsub(input: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """`other - alpha * input`."""
    return sub(other, input, alpha=alpha)


def float_power(input: Any, exponent: Any) -> Tensor:
    """`input ** exponent` in double precision, complex where either is.

    >>> import cugrad as torch
    >>> torch.float_power(torch.tensor([2, 3]), -1)
    tensor([0.5000, 0.3333], dtype=torch.float64)
    """
    wide = _double(input, exponent)
    return recorded.pow(*[cast(x, wide) if isinstance(x, Tensor) else x for x in (input, exponent)])


def _double(*operands: Any) -> dtypes.dtype:
    """complex128 where an operand is complex, else float64."""
    turned = any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex)
                 for x in operands)  # fmt: skip
    return dtypes.complex128 if turned else dtypes.float64


def _float_power_(self: Tensor, exponent: Any) -> Tensor:
    """`float_power` with its result in the place of this tensor, which is double or complex128."""
    wide = _double(self, exponent)
    if self.dtype is not wide:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype} but the operation's result "
            f"requires dtype {wide}"
        )
    exponent = cast(exponent, wide) if isinstance(exponent, Tensor) else exponent
    return apply_inplace(TABLE["pow"], (self, exponent))


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2 ** other; where `other` is of integers, in the dtype of a floating-point `input`.

    There the result is right though 2 ** other has no place in that dtype.
    """
    array_of(other, "ldexp", "other", 2)
    if not _is_exponent(input, other):
        return recorded.mul(input, recorded.pow(2.0, other))
    half = recorded.floor(cast(other, dtypes.float64) / 2)
    result = cast(input, dtypes.float64)
    for part in (half, other - half):
        result = result * recorded.pow(2.0, part)
    return cast(result, input.dtype)


def _is_exponent(input: Tensor, other: Tensor) -> bool:
    return input.is_floating_point() and other._array.dtype.kind in "iu"


def _ldexp_(self: Tensor, other: Tensor) -> Tensor:
    """`ldexp` with its result in the place of this tensor."""
    array_of(other, "ldexp_", "other", 2)
    other = cast(other, dtypes.float64) if _is_exponent(self, other) else other
    return apply_inplace(TABLE["mul"], (self, recorded.pow(2.0, other)))


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of dimension `p`; RuntimeError where p < 1.

    >>> import cugrad as torch
    >>> torch.mvlgamma(torch.tensor([2.0, 3.0]), 2)
    tensor([0.4516, 1.5502])
    """
    array_of(input, "mvlgamma")
    p = number(p, "mvlgamma", "p")
    if p < 1:
        raise RuntimeError(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
    total = recorded.lgamma(input)
    for j in range(1, p):
        total = total + recorded.lgamma(input - j / 2)
    return contiguous(total + p * (p - 1) / 4 * log(pi))


def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part of each element is zero."""
    if array_of(input, "isreal").dtype.kind == "c":
        return recorded.eq(recorded.imag(input), 0)
    return ones_like(input, dtype=dtypes.bool_)


@autocasts
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    >>> import cugrad as torch
    >>> torch.trace(torch.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    ndim = array_of(input, "trace").ndim
    if ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {ndim}")
    return sum(diagonal(input))


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The n-th differences of neighbours along a dim, of which there are n fewer; bools by xor.

    `prepend` and `append` are joined to the input first.

    >>> import cugrad as torch
    >>> torch.diff(torch.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    ndim = array_of(input, "diff").ndim
    if not ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = canonical_dim(dim, ndim)
    if not n:
        return input.clone()
    parts = [x for x in (prepend, input, append) if x is not None]
    for part in parts:
        if array_of(part, "diff").ndim != ndim:
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input: got "
                f"{part.ndim} and {ndim}"
            )
    if len(parts) > 1:
        input = cat(parts, dim)
    subtract = recorded.logical_xor if input.dtype is dtypes.bool_ else recorded.sub
    for _ in range(min(n, input.shape[dim])):
        rest = input.shape[dim] - 1
        input = subtract(narrow(input, dim, 1, rest), narrow(input, dim, 0, rest))
    return input


METHODS = {
    "diff": diff, "float_power": float_power, "float_power_": _float_power_, "isreal": isreal,
    "ldexp": ldexp, "ldexp_": _ldexp_, "mvlgamma": mvlgamma,
    "positive": positive, "trace": trace,
}  # fmt: skip
