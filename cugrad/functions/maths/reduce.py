"""Reductions as PyTorch spells them: sums, means, extrema, variances, norms, running sums."""

from __future__ import annotations

from math import inf
from typing import Any

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...dtypes import as_dtype, type_name
from ...ops.dims import canonical_dim, canonical_dims, reduced_dims
from ...tensor import Tensor
from ..calls.arguments import array_of, cast, lifted, varargs
from ..calls.return_types import return_type

__all__ = [
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "cumprod",
    "cumsum", "logcumsumexp", "logsumexp", "max", "mean", "min", "norm", "prod", "std", "std_mean",
    "sum", "var", "var_mean",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"count_nonzero", "std_mean", "var_mean"}


def sum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The sum of all elements, or over one or several dims; integers and bools add up in int64.

    >>> import cugrad as torch
    >>> torch.sum(torch.tensor([[1, 2], [3, 4]]), dim=0)
    tensor([4, 6])
    """
    ndim = array_of(input, "sum").ndim
    dims = None if dim is None else reduced_dims(dim, ndim)
    if dtype is not None:
        return cast(recorded.sum(cast(input, dtype), dims, keepdim), dtype)
    return recorded.sum(input, dims, keepdim)


def mean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The mean of all elements, or over one or several dims, of a floating-point tensor.

    >>> import cugrad as torch
    >>> torch.mean(torch.tensor([1.0, 2.0, 6.0]))
    tensor(3.)
    """
    array = array_of(input, "mean")
    if dtype is not None:
        dtype = as_dtype(dtype)
        if not (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(
                "mean(): could not infer output dtype. Optional dtype must be either a floating "
                f"point or complex dtype. Got: {type_name(dtype)}"
            )
        input = cast(input, dtype)
    elif array.dtype.kind in "biu":
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {type_name(input.dtype)}; convert it first, for example x.float()"
        )
    return recorded.mean(input, None if dim is None else reduced_dims(dim, array.ndim), keepdim)


def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.dtype | None = None,
) -> Tensor:
    """The product of all elements, or along one dim; its gradient is exact at zeros too.

    >>> import cugrad as torch
    >>> torch.prod(torch.tensor([2, 3, 4]))
    tensor(24)
    """
    ndim = array_of(input, "prod").ndim
    if dim is not None:
        dim = canonical_dim(dim, ndim)
    dim = dim if ndim else None
    if dtype is not None:
        return cast(recorded.prod(cast(input, dtype), dim, keepdim), dtype)
    return recorded.prod(input, dim, keepdim)


def cumsum(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
    """Running sums along a dim.

    >>> import cugrad as torch
    >>> torch.cumsum(torch.tensor([1, 2, 3]), dim=0)
    tensor([1, 3, 6])
    """
    ndim = array_of(input, "cumsum").ndim
    dim = canonical_dim(dim, ndim)
    if not ndim:
        return lifted(cumsum, input, dim, dtype=dtype)
    if dtype is not None:
        return cast(recorded.cumsum(cast(input, dtype), dim), dtype)
    return recorded.cumsum(input, dim)


def cumprod(input: Tensor, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
    """Running products along a dim; the gradient is exact at zeros too.

    >>> import cugrad as torch
    >>> torch.cumprod(torch.tensor([1, 2, 3]), dim=0)
    tensor([1, 2, 6])
    """
    ndim = array_of(input, "cumprod").ndim
    dim = canonical_dim(dim, ndim)
    if not ndim:
        return lifted(cumprod, input, dim, dtype=dtype)
    if dtype is not None:
        return cast(recorded.cumprod(cast(input, dtype), dim), dtype)
    return recorded.cumprod(input, dim)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Running log(sum(exp(input))) along a dim, without overflow.

    >>> import cugrad as torch
    >>> torch.logcumsumexp(torch.tensor([1000.0, 1000.0]), dim=0)
    tensor([1000.0000, 1000.6932])
    """
    array = array_of(input, "logcumsumexp")
    dim = canonical_dim(dim, array.ndim)
    if array.dtype.kind in "biu":
        raise NotImplementedError(
            f"logcumsumexp: not implemented for {input.dtype}; convert it first, as x.float()"
        )
    if not array.ndim:
        return lifted(logcumsumexp, input, dim)
    return recorded.logcumsumexp(input, dim)


# Extrema ------------------------------------------------------------------------------------------

_MAX = return_type("max")
_MIN = return_type("min")
_AMINMAX = return_type("aminmax", "min max")


def _check_ordered(function: str, array: Any, dims: Any) -> None:
    if array.dtype.kind == "b" and function.startswith("arg"):
        raise RuntimeError(f"{function}(): does not support bool input; use x.int()")
    _check_extent(function, array, dims)
    if array.dtype.kind == "c":
        raise NotImplementedError(
            f"{function}(): does not support complex input; compare abs() or real"
        )


def _check_extent(function: str, array: Any, dims: Any) -> None:
    if array.size:
        return
    if dims is None:
        error = IndexError if function.startswith("arg") else RuntimeError
        raise error(
            f"{function}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if array.shape[d] == 0:
            raise IndexError(f"{function}(): Expected reduction dim {d} to have non-zero size.")


def _extreme(function: str, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    array = array_of(input, function)
    dims = reduced_dims(dim, array.ndim)
    _check_ordered(function, array, dims)
    return getattr(recorded, function)(input, dims, keepdim)


def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest element of all, or over one or several dims; ties share the gradient evenly.

    >>> import cugrad as torch
    >>> torch.amax(torch.tensor([[1, 5], [3, 4]]), dim=1)
    tensor([5, 4])
    """
    return _extreme("amax", input, dim, keepdim)


def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest element of all, or over one or several dims; ties share the gradient evenly."""
    return _extreme("amin", input, dim, keepdim)


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element, as a pair (min, max)."""
    array = array_of(input, "aminmax")
    dims = reduced_dims(() if dim is None else dim, array.ndim)
    _check_ordered("aminmax", array, dims)
    return _AMINMAX(*recorded.aminmax(input, dims, keepdim))


def max(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None
) -> Any:
    """The largest element; with `dim` the pair (values, indices) along it; or elementwise of two.

    With `dim` the gradient goes to the element that `indices` names; without it, ties share.

    >>> import cugrad as torch
    >>> torch.max(torch.tensor([1, 5, 3]))
    tensor(5)
    """
    return _max_or_min("max", _MAX, input, dim, keepdim, other)


def min(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None
) -> Any:
    """The smallest element; with `dim` the pair (values, indices) along it; or elementwise of two.

    >>> import cugrad as torch
    >>> torch.min(torch.tensor([[1, 5], [3, 2]]), dim=1).indices
    tensor([0, 1])
    """
    return _max_or_min("min", _MIN, input, dim, keepdim, other)


def _max_or_min(
    function: str, kind: Any, input: Tensor, dim: Any, keepdim: bool, other: Tensor | None
) -> Any:
    array = array_of(input, function)
    if isinstance(dim, Tensor) and not keepdim:
        other = dim
    if other is not None:
        return getattr(recorded, function + "imum")(input, other)
    if dim is not None:
        dim = canonical_dim(dim, array.ndim)
        _check_ordered(function, array, (dim,))
        if not array.ndim:
            return kind(*getattr(recorded, function)(recorded.unsqueeze(input, 0), 0))
        return kind(*getattr(recorded, function)(input, dim, keepdim))
    _check_ordered(function, array, None)
    return getattr(recorded, function + "_all")(input)


def _arg(function: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    array = array_of(input, function)
    if dim is not None:
        dim = canonical_dim(dim, array.ndim)
    _check_ordered(function, array, None if dim is None else (dim,))
    return getattr(recorded, function)(input, dim if array.ndim else None, keepdim)


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element along a dim, or in the flat tensor; of ties the first.

    >>> import cugrad as torch
    >>> torch.argmax(torch.tensor([[1, 5], [3, 2]]), dim=1)
    tensor([1, 0])
    """
    return _arg("argmax", input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element along a dim, or in the flat tensor; of ties the first."""
    return _arg("argmin", input, dim, keepdim)


# Variance -----------------------------------------------------------------------------------------


def _spread_of(
    function: str, input: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: float | None
) -> Any:
    array = array_of(input, function)
    if array.dtype.kind in "biu":
        raise RuntimeError(
            f"{function}: std and var only support floating point and complex dtypes, got "
            f"{input.dtype}; convert it first, for example x.float()"
        )
    if isinstance(dim, bool):  # var(x, unbiased)
        unbiased, dim = dim, None
    if correction is None:
        correction = 1 if unbiased else 0
    dims = None if dim is None else reduced_dims(dim, array.ndim)
    return getattr(recorded, function)(input, dims, correction, keepdim)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance: squared deviations from the mean over (count - correction), 1 by default.

    >>> import cugrad as torch
    >>> torch.var(torch.tensor([1.0, 2.0, 3.0])), torch.var(torch.tensor([1.0, 3.0]), correction=0)
    (tensor(1.), tensor(1.))
    """
    return _spread_of("var", input, dim, unbiased, keepdim, correction)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation, the square root of `var`."""
    return _spread_of("std", input, dim, unbiased, keepdim, correction)


def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return _spread_of("var_mean", input, dim, unbiased, keepdim, correction)


def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    return _spread_of("std_mean", input, dim, unbiased, keepdim, correction)


# Others -------------------------------------------------------------------------------------------


def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over one or several dims, without overflow.

    >>> import cugrad as torch
    >>> torch.logsumexp(torch.tensor([1000.0, 1000.0]), dim=0)
    tensor(1000.6932)
    """
    array = array_of(input, "logsumexp")
    if array.dtype.kind in "biu":
        input = cast(input, dtypes.get_default_dtype())
    return recorded.logsumexp(input, reduced_dims(dim, array.ndim), keepdim)


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.dtype | None = None,
) -> Tensor:
    """The vector norm (sum |x|**ord)**(1/ord), over all or some dims; also of order 0 and inf.

    Its gradient at zero is zero.

    >>> import cugrad as torch
    >>> vector_norm(torch.tensor([3.0, 4.0])), vector_norm(torch.tensor([3.0, -4.0]), float("inf"))
    (tensor(5.), tensor(4.))
    """
    array = array_of(x, "linalg.vector_norm", "x")
    ord = number(ord, "linalg.vector_norm", "ord")
    if dtype is not None:
        dtype = as_dtype(dtype)
        if dtypes.promote_types(x.dtype, dtype) is not dtype or dtype.category < dtypes.FLOAT:
            raise RuntimeError(
                f"linalg.vector_norm: the dtype of the input ({x.dtype}) should be convertible "
                f"without narrowing to the specified dtype ({dtype})"
            )
        x = cast(x, dtype)
    elif array.dtype.kind in "biu":
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {x.dtype}; convert it first, for example x.float()"
        )
    dims = None if dim is None else reduced_dims(dim, array.ndim)
    if not array.size and (ord < 0 or ord == inf):
        for d in range(array.ndim) if dims is None else dims:
            if not array.shape[d]:
                raise RuntimeError(
                    f"linalg.vector_norm cannot compute the {ord} norm on the dimension {d} "
                    "because this dimension is empty and the operation does not have an identity"
                )
    return recorded.linalg_vector_norm(x, ord, dims, keepdim)


@autocasts
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: dtypes.dtype | None = None,
) -> Tensor:
    """The p-norm of all elements or over dims; "fro" and None mean 2.

    With p="nuc" the sum of the singular values of the matrices that lie along two dims.

    >>> import cugrad as torch
    >>> torch.tensor([[3.0, 0.0], [0.0, 4.0]]).norm(), torch.norm(torch.eye(3), "nuc")
    (tensor(5.), tensor(3.))
    """
    if p == "nuc":
        return _nuclear_norm(input if dtype is None else cast(input, dtype), dim, keepdim)
    if p is None or p == "fro":
        p = 2
    elif isinstance(p, str):
        raise RuntimeError(f"norm: got p={p!r}, want a number, 'fro' or 'nuc'")
    return vector_norm(input, p, dim, keepdim, dtype=dtype)


def _nuclear_norm(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    ndim = array_of(input, "norm").ndim
    dims = tuple(range(ndim)) if dim is None else canonical_dims(dim, ndim)
    if len(dims) != 2:
        raise RuntimeError(
            f"nuclear_norm: got dim={dim} of a tensor with {ndim} dims, want two dims"
        )
    others = tuple(d for d in range(ndim) if d not in dims)
    values = recorded.linalg_svdvals(recorded.permute(input, (*others, *dims)))
    total = recorded.sum(values, (len(others),), False)
    for d in sorted(dims) if keepdim else ():
        total = recorded.unsqueeze(total, d)
    return total


def _truths(input: Tensor) -> Tensor:
    """Whether each element is not zero: what `any` and `all` over no dims are, as in PyTorch."""
    truths = recorded.ne(input, 0)
    return cast(truths, dtypes.uint8) if input.dtype is dtypes.uint8 else truths


def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether some element is not zero, of all or over dims."""
    ndim = array_of(input, "any").ndim
    if isinstance(dim, (tuple, list)) and not dim:
        return _truths(input)
    return recorded.any(input, None if dim is None else reduced_dims(dim, ndim), keepdim)


def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether no element is zero, of all or over dims.

    >>> import cugrad as torch
    >>> torch.all(torch.tensor([[True, False], [True, True]]), dim=1)
    tensor([False,  True])
    """
    ndim = array_of(input, "all").ndim
    if isinstance(dim, (tuple, list)) and not dim:
        return _truths(input)
    return recorded.all(input, None if dim is None else reduced_dims(dim, ndim), keepdim)


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero, of all or over dims."""
    ndim = array_of(input, "count_nonzero").ndim
    return recorded.count_nonzero(input, None if dim is None else reduced_dims(dim, ndim))


def _count_nonzero(self: Tensor, *dims: Any, dim: Any = None) -> Tensor:
    """How many elements are not zero, of all or over dims."""
    return count_nonzero(self, varargs(dims, dim) if dims else dim)


METHODS = {name: globals()[name] for name in __all__ if name != "vector_norm"}
METHODS["count_nonzero"] = _count_nonzero
