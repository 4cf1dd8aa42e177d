"""Quantiles, covariances and distances as PyTorch spells them, composed of rows."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...dtypes import is_floating
from ...ops.dims import canonical_dim
from ...tensor import Tensor
from ..calls.arguments import array_of, cast, fresh
from ..creation.factories import full
from ..shapes.layouts import contiguous
from ..shapes.views import movedim
from .reduce import sum, vector_norm

__all__ = [
    "corrcoef", "cov", "dist", "nanmean", "nanquantile", "nansum", "quantile", "renorm",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"corrcoef", "cov", "dist"}


# Without nan --------------------------------------------------------------------------------------


def nansum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The sum of the elements that are not nan, of all or over dims.

    >>> import cugrad as torch
    >>> torch.nansum(torch.tensor([1.0, float("nan"), 3.0]))
    tensor(4.)
    """
    array = array_of(input, "nansum")
    if array.dtype.kind == "c":
        raise RuntimeError("nansum does not support complex inputs")
    if is_floating(array.dtype):
        input = recorded.masked_fill(input, recorded.isnan(input), 0)
    return sum(input, dim, keepdim, dtype=dtype)


def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The mean of the elements that are not nan, of all or over dims.

    >>> import cugrad as torch
    >>> torch.nanmean(torch.tensor([1.0, float("nan"), 3.0]))
    tensor(2.)
    """
    if array_of(input, "nanmean").dtype.kind in "biu":
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype}; convert it first, for example x.float()"
        )
    numbers = sum(recorded.logical_not(recorded.isnan(input.detach())), dim, keepdim)
    total = nansum(input, dim, keepdim, dtype=dtype)
    return recorded.div(total, cast(numbers, total.dtype))


# Quantiles ----------------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@autocasts
@fresh
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The q-quantiles of all elements, or along a dim; several `q` make a first dim of the result.

    `q` is a number in [0, 1] or a tensor of such. `interpolation` says what lies between two
    elements: linear, lower, higher, midpoint or nearest. The result is nan where an element is.

    >>> import cugrad as torch
    >>> torch.quantile(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0.5, 1.0]))
    tensor([1.5000, 3.0000])
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@autocasts
@fresh
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The `quantile` of the elements that are not nan.

    >>> import cugrad as torch
    >>> torch.nanquantile(torch.tensor([float("nan"), 1.0, 2.0]), 0.5)
    tensor(1.5000)
    """
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(
    function: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    array = array_of(input, function)
    q = _checked_q(function, input, q)
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{function}() interpolation must be one of linear, lower, higher, midpoint or "
            f"nearest, but got {interpolation}"
        )
    ndim = array.ndim
    if dim is None:
        values = recorded.reshape(input, (array.size,))
    else:
        dim = canonical_dim(dim, ndim)
        values = movedim(input, dim, -1) if ndim else recorded.reshape(input, (1,))
    if not values._array.size:
        raise RuntimeError(f"{function}() input tensor must be non-empty")
    quantiles = movedim(_at_ranks(function, values, q, interpolation), -1, 0)
    if keepdim and ndim:
        shape = quantiles._array.shape
        ones = (1,) * ndim if dim is None else (*shape[1 : dim + 1], 1, *shape[dim + 1 :])
        quantiles = recorded.reshape(quantiles, (shape[0], *ones))
    return quantiles if q._array.ndim else recorded.squeeze(quantiles, (0,))


def _checked_q(function: str, input: Tensor, q: Any) -> Tensor:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"{function}() input tensor must be either float or double dtype, got {input.dtype}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{function}() q must be in the range [0, 1] but got {q}")
        return full((), q, dtype=input.dtype, device=input.device)
    array = q._array
    if array.ndim > 1:
        raise RuntimeError(
            f"{function}() q must be a scalar or 1D tensor, got one of {array.ndim} dims"
        )
    if q.dtype is not input.dtype:
        raise RuntimeError(
            f"{function}() q tensor must be same dtype as the input tensor: got {q.dtype} and "
            f"{input.dtype}"
        )
    if backend_of(array).device_type == "cpu":  # on a GPU it would wait
        values = plain(array)  # of all examples
        if values.size and not ((values >= 0) & (values <= 1)).all():
            raise RuntimeError(f"{function}() q values must be in the range [0, 1]")
    return q


def _at_ranks(function: str, values: Tensor, q: Tensor, interpolation: str) -> Tensor:
    """Along the last dim, what stands at the places `q * (n - 1)` of the order."""
    n = values._array.shape[-1]
    axis = values._array.ndim - 1
    ordered, _ = recorded.sort(values, axis, stable=False)
    missing = recorded.isnan(values.detach())
    q = recorded.reshape(q, (-1,))
    if function == "nanquantile":
        numbers = sum(recorded.logical_not(missing), axis, True)
        last = cast(recorded.clamp(numbers - 1, 0, None), values.dtype)
        ranks = last * q
    else:
        ranks = recorded.expand(q * (n - 1), (*values._array.shape[:-1], q._array.shape[0]))
        ranks = recorded.masked_fill(ranks, recorded.any(missing, (axis,), True), float(n - 1))
    if interpolation in ("lower", "higher", "nearest"):
        rounding = {"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation]
        return _gathered(ordered, getattr(recorded, rounding)(ranks), axis)
    floor = recorded.floor(ranks)
    low = _gathered(ordered, floor, axis)
    high = _gathered(ordered, recorded.ceil(ranks), axis)
    weight = 0.5 if interpolation == "midpoint" else ranks - floor
    return recorded.add(low, recorded.mul(recorded.sub(high, low), weight))


def _gathered(ordered: Tensor, ranks: Tensor, axis: int) -> Tensor:
    return recorded.gather(ordered, cast(ranks.detach(), dtypes.int64), axis)


# Covariance ---------------------------------------------------------------------------------------


def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of the variables in the rows of a matrix, whose columns are observations.

    `fweights` says how often each observation counts, `aweights` how much.

    >>> import cugrad as torch
    >>> torch.cov(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    tensor([[ 2., -2.],
            [-2.,  2.]])
    """
    array = array_of(input, "cov")
    if array.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{array.ndim} dimensions"
        )
    if array.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = input if array.ndim == 2 else recorded.reshape(input, (1, array.size))
    number = rows._array.shape[1]
    weights = _observation_weights(number, fweights, aweights)
    if weights is None:
        rows = _floating(rows)
        total: Any = number
        average = recorded.sum(rows, (1,), True) / number
        freedom: Any = max(number - correction, 0)
        centred = recorded.sub(rows, average)
        weighted = centred
    else:
        total = sum(weights)
        average = recorded.sum(recorded.mul(rows, weights), (1,), True) / total
        freedom = total - correction
        if aweights is not None and correction:
            share = sum(recorded.mul(weights, aweights)) / total
            freedom = total - share * correction
        freedom = recorded.clamp(freedom, 0, None)
        centred = recorded.sub(rows, average)
        weighted = recorded.mul(centred, weights)
    turned = recorded.conj(recorded.transpose(weighted, 0, 1))
    covariances = recorded.matmul(centred, cast(turned, centred.dtype))
    covariances = recorded.div(covariances, freedom)
    return recorded.reshape(covariances, ()) if covariances._array.size == 1 else covariances


def _floating(input: Tensor) -> Tensor:
    return cast(input, dtypes.get_default_dtype()) if input._array.dtype.kind in "biu" else input


def _observation_weights(
    number: int, fweights: Tensor | None, aweights: Tensor | None
) -> Tensor | None:
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        array = array_of(weights, "cov", name)
        if array.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
                f"{array.ndim} dimensions"
            )
        if (array.dtype.kind in "iu") != (name == "fweights") or array.dtype.kind in "bc":
            kind = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(
                f"cov(): expected {name} to have {kind} dtype but got {name} with "
                f"{weights.dtype} dtype"
            )
        if array.size != number:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are observations in the "
                f"input but got {array.size} != {number}"
            )
        if backend_of(array).device_type == "cpu" and array.size and array.min() < 0:
            raise RuntimeError(f"cov(): {name} cannot be negative")
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return recorded.mul(fweights, aweights)


def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlations of the variables in the rows of a matrix.

    >>> import cugrad as torch
    >>> torch.corrcoef(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    ndim = array_of(input, "corrcoef").ndim
    if ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{ndim} dimensions"
        )
    correlations = cov(input)
    if not correlations._array.ndim:
        return recorded.div(correlations, correlations)
    deviation = recorded.sqrt(recorded.diagonal(correlations, 0, 0, 1))
    if deviation.is_complex():
        deviation = recorded.real(deviation)
    correlations = recorded.div(correlations, recorded.unsqueeze(deviation, 1))
    correlations = recorded.div(correlations, recorded.unsqueeze(deviation, 0))
    if correlations.is_complex():
        real, imaginary = recorded.real(correlations), recorded.imag(correlations)
        turned = recorded.mul(recorded.clamp(imaginary, -1, 1), 1j)
        return recorded.add(recorded.clamp(real, -1, 1), turned)
    return recorded.clamp(correlations, -1, 1)


# Distances ----------------------------------------------------------------------------------------


@autocasts
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of `input - other`, over all elements.

    >>> import cugrad as torch
    >>> torch.dist(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]))
    tensor(5.)
    """
    array_of(input, "dist"), array_of(other, "dist", "other", 2)
    return vector_norm(recorded.sub(input, other), p)


@autocasts
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Each slice along `dim`, shrunk to the p-norm `maxnorm` where its norm is larger.

    >>> import cugrad as torch
    >>> torch.renorm(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    array = array_of(input, "renorm")
    p, maxnorm = number(p, "renorm", "p"), number(maxnorm, "renorm", "maxnorm")
    if isinstance(p, complex) or p <= 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported: got p={p}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if array.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {array.ndim} dimensions"
        )
    if array.dtype.kind in "biu":
        raise RuntimeError(
            f"renorm: want a floating-point or complex tensor, got {input.dtype}; convert it "
            "first, for example x.float()"
        )
    dim = canonical_dim(dim, array.ndim)
    others = tuple(d for d in range(array.ndim) if d != dim)
    size = recorded.linalg_vector_norm(input, p, others, True)
    # where it is larger: a norm that is nan is not, and its slice stays as it is
    over = size > maxnorm
    size = recorded.where(over, size, 1.0)  # of one that is not, no slope but zero is right
    factor = recorded.where(over, recorded.div(maxnorm, size + 1e-7), 1.0)
    return contiguous(recorded.mul(input, cast(factor, input.dtype)))


METHODS = {name: globals()[name] for name in __all__}
