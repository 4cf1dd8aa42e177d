"""Sorting, selection by order, unique elements and searching as PyTorch spells them."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...ops.dims import canonical_dim
from ...tensor import Tensor
from ..calls.arguments import array_of, lifted, refused
from ..calls.return_types import return_type
from ..creation.factories import tensor

__all__ = [
    "argsort", "bucketize", "cummax", "cummin", "isin", "kthvalue", "median", "mode", "msort",
    "nanmedian", "nonzero_static", "searchsorted", "sort", "topk", "unique", "unique_consecutive",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"unique", "unique_consecutive"}


def _ordered(function: str, input: Tensor) -> Any:
    array = array_of(input, function)
    if array.dtype.kind == "c":
        raise NotImplementedError(
            f"{function}(): does not support complex input; take abs() or real"
        )
    return array


_TYPES = {
    name: return_type(name)
    for name in ("cummax", "cummin", "kthvalue", "median", "mode", "nanmedian", "sort", "topk")
}


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = False
) -> Any:
    """The pair (values, indices) of the elements in order along `dim`; nan comes last.

    With `stable`, equal elements keep their order; without, long sorts may be quicker.

    >>> import cugrad as torch
    >>> torch.sort(torch.tensor([3, 1, 2])).indices
    tensor([1, 2, 0])
    """
    ndim = _ordered("sort", input).ndim
    dim = canonical_dim(dim, ndim)
    if not ndim:
        return lifted(sort, input, dim, descending)
    return _TYPES["sort"](*recorded.sort(input, dim, descending, stable=bool(stable)))


def _sort_method(self: Tensor, dim: Any = -1, descending: bool = False, stable: Any = False) -> Any:
    return sort(self, dim, descending, stable)


_sort_method.__doc__ = sort.__doc__


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that put the elements in order along `dim`, as those of `sort`."""
    ndim = _ordered("argsort", input).ndim
    dim = canonical_dim(dim, ndim)
    if not ndim:
        return lifted(argsort, input, dim, descending)
    return recorded.argsort(input, dim, descending, stable=bool(stable))


def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dim.

    >>> import cugrad as torch
    >>> torch.msort(torch.tensor([[3, 1], [2, 5]]))
    tensor([[2, 1],
            [3, 5]])
    """
    return sort(input, 0)[0]


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The pair (values, indices) of the `k` largest, or smallest, elements along `dim`.

    They are in order when `sorted` is set; without, in any order.

    >>> import cugrad as torch
    >>> torch.topk(torch.tensor([3, 1, 2]), 2).values
    tensor([3, 2])
    """
    array = _ordered("topk", input)
    if array.dtype.kind == "b":
        raise RuntimeError("topk does not support bool dtypes; use x.int()")
    shape = array.shape
    dim = canonical_dim(dim, len(shape))
    if not 0 <= k <= (shape[dim] if shape else 1):
        raise RuntimeError(
            f"selected index k out of range: got k={k} for shape {tuple(shape)} along dim {dim}"
        )
    if not shape:
        return lifted(topk, input, k, dim, largest)
    return _TYPES["topk"](*recorded.topk(input, k, dim, largest, sorted))


# One element by its place -------------------------------------------------------------------------


def _pick(function: str, input: Tensor, dim: Any, keepdim: bool, *place: int) -> Any:
    """(values, indices) of a row that picks one element along a dim."""
    array = array_of(input, function)
    dim = canonical_dim(dim, array.ndim)
    run, kind = getattr(recorded, function), _TYPES[function]
    if array.ndim and not array.shape[dim]:
        raise IndexError(f"{function}(): Expected reduction dim {dim} to have non-zero size.")
    _ordered(function, input)
    if array.dtype.kind == "b" and function != "mode":
        raise NotImplementedError(f"{function}: not implemented for torch.bool; use x.int()")
    if not array.ndim:
        return kind(*run(recorded.unsqueeze(input, 0), *place, 0))
    return kind(*run(input, *place, dim, keepdim))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The pair (values, indices) of the k-th smallest elements along a dim, counted from 1.

    >>> import cugrad as torch
    >>> torch.kthvalue(torch.tensor([30, 10, 20]), 2).values
    tensor(20)
    """
    array = array_of(input, "kthvalue")
    at = canonical_dim(dim, array.ndim)
    n = array.shape[at] if array.ndim else 1
    if n and not 1 <= k <= n:
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {at}: got k={k}, want 1 to "
            f"{n}"
        )
    return _pick("kthvalue", input, dim, keepdim, k)


def _median_of(function: str, input: Tensor, dim: int | None, keepdim: bool) -> Any:
    if dim is None:
        if _ordered(function, input).dtype.kind == "b":
            raise NotImplementedError(f"{function}: not implemented for torch.bool; use x.int()")
        return getattr(recorded, function + "_all")(input)
    return _pick(function, input, dim, keepdim)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle of all elements, the lower of two; with `dim` the pair (values, indices) along it.

    It is nan where an element is. Without `dim`, ties share the gradient.

    >>> import cugrad as torch
    >>> torch.median(torch.tensor([4.0, 1.0, 3.0, 2.0]))
    tensor(2.)
    """
    return _median_of("median", input, dim, keepdim)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The `median` of the elements that are not nan.

    >>> import cugrad as torch
    >>> torch.nanmedian(torch.tensor([4.0, float("nan"), 3.0]))
    tensor(3.)
    """
    return _median_of("nanmedian", input, dim, keepdim)


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The pair (values, indices) of the most frequent values along a dim, of several the least.

    >>> import cugrad as torch
    >>> torch.mode(torch.tensor([3, 1, 3, 2, 2]))
    torch.return_types.mode(
    values=tensor(2),
    indices=tensor(4))
    """
    return _pick("mode", input, dim, keepdim)


def _running(function: str, input: Tensor, dim: int) -> Any:
    ndim = _ordered(function, input).ndim
    dim = canonical_dim(dim, ndim)
    run, kind = getattr(recorded, function), _TYPES[function]
    if not ndim:
        return lifted(lambda row: kind(*run(row, 0)), input)
    return kind(*run(input, dim))


def cummax(input: Tensor, dim: int) -> Any:
    """The pair (values, indices) of the largest elements so far along a dim.

    >>> import cugrad as torch
    >>> torch.cummax(torch.tensor([1, 3, 2]), 0).values
    tensor([1, 3, 3])
    """
    return _running("cummax", input, dim)


def cummin(input: Tensor, dim: int) -> Any:
    """The pair (values, indices) of the smallest elements so far along a dim."""
    return _running("cummin", input, dim)


# Equals -------------------------------------------------------------------------------------------


VALUES_ONLY = {"values_only": True}
NODES_OF_ONCE = {
    "unique": ("_unique2", "Unique2Backward0"),
    "unique_dim": ("unique_dim", "UniqueDimBackward0"),
    "unique_consecutive": ("unique_consecutive", "UniqueConsecutiveBackward0"),
}


def _once(
    function: str, input: Tensor, dim: int | None, return_inverse: bool, return_counts: bool
) -> Any:
    array = _ordered(function, input)
    if dim is not None:
        dim = canonical_dim(dim, array.ndim)
        if not array.ndim:
            dim = None
        elif not array.size and array.shape[dim] and array.ndim > 1:
            raise RuntimeError(
                f"{function}: there are 0 sized dimensions in shape {tuple(array.shape)}, and they "
                f"aren't selected by dim {dim}"
            )
    options = {} if return_inverse or return_counts or function != "unique" else VALUES_ONLY
    output, inverse, counts = getattr(recorded, function)(input, dim, **options)
    of_dim = function == "unique" and dim is not None
    name, node = NODES_OF_ONCE["unique_dim" if of_dim else function]
    output = refused(output, (input,), name, node)
    triple = (output, inverse if return_inverse else None, counts if return_counts else None)
    results = tuple(x for x in triple if x is not None)
    return results if len(results) > 1 else output


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Each element once, in order; or each slice along `dim`. Waits for the device.

    With `return_inverse` also where each element of the input is found in the output, with
    `return_counts` also how often it occurs. The output is in order without `sorted` too.

    >>> import cugrad as torch
    >>> torch.unique(torch.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if not isinstance(sorted, bool):
        raise TypeError(f"unique(): argument 'sorted' must be bool, not {type(sorted).__name__}")
    return _once("unique", input, dim, return_inverse, return_counts)


def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The first element of each run of equals; or the first slice along `dim`.

    >>> import cugrad as torch
    >>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    return _once("unique_consecutive", input, dim, return_inverse, return_counts)


def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Which elements are found among the test elements, or with `invert` which are not.

    One of the two may be a number. `assume_unique` says that no element stands twice in either,
    which may be quicker.

    >>> import cugrad as torch
    >>> torch.isin(torch.tensor([1, 2, 3]), torch.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    like = elements if isinstance(elements, Tensor) else test_elements
    array_of(like, "isin", "elements")
    pair = [
        x if isinstance(x, Tensor) else tensor(x, device=like.device)
        for x in (elements, test_elements)
    ]
    for x in pair:
        if x.is_complex():
            raise RuntimeError("isin: unsupported input type torch.complex: take real or abs")
    return recorded.isin(pair[0].detach(), pair[1].detach(), assume_unique, invert)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first `size` nonzero elements, one a line; lines beyond hold `fill_value`.

    The shape of the result depends on no value, so that nothing waits for the device.

    >>> import cugrad as torch
    >>> torch.nonzero_static(torch.tensor([0, 3, 4]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    array_of(input, "nonzero_static")
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    return recorded.nonzero_static(input, size, fill_value)


# A place in an order ------------------------------------------------------------------------------


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each value would have to be put into a sorted sequence to keep it sorted.

    The sequence has one dim, or those of `input` but for the last. Of equals the place is the first
    one, or with `right=True` (`side="right"`) the one behind the last.

    >>> import cugrad as torch
    >>> torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([3, 6]))
    tensor([1, 3])
    """
    sequence = array_of(sorted_sequence, "searchsorted", "sorted_sequence")
    if side not in (None, "left", "right"):
        raise RuntimeError(
            f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        )
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left "
            "while right was True"
        )
    if not isinstance(input, Tensor):
        if sequence.ndim != 1:
            raise RuntimeError(
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
                f"dimension is 1, got shape {tuple(sequence.shape)}"
            )
        input = tensor(input, device=sorted_sequence.device)
    values = input._array
    _check_search(sequence, values)
    order = None
    if sorter is not None:
        order = array_of(sorter, "searchsorted", "sorter")
        _check_sorter(sequence, order)
    positions = recorded.searchsorted(
        sorted_sequence.detach(), input.detach(), right or side == "right", order
    )
    return positions.to(dtypes.int32) if out_int32 else positions


def _check_search(sequence: Any, values: Any) -> None:
    name = "torch.searchsorted()"
    if "c" in (sequence.dtype.kind, values.dtype.kind):
        raise NotImplementedError(f"{name}: complex numbers have no order")
    if not sequence.ndim:
        raise RuntimeError(f"{name}: boundaries tensor should have positive dimension, got 0")
    if not values.ndim and sequence.ndim != 1:
        raise RuntimeError(
            f"{name}: input value can be a scalar only when boundaries tensor dimension is 1"
        )
    if sequence.ndim > 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            f"{name}: boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            "boundaries tensor and input value tensor must match, but we got boundaries tensor "
            f"{list(sequence.shape)} and input value tensor {list(values.shape)}"
        )


def _check_sorter(sequence: Any, sorter: Any) -> None:
    if sorter.shape != sequence.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
            f"tensor {list(sequence.shape)} and got sorter tensor {list(sorter.shape)}"
        )
    if sorter.dtype.name != "int64":
        raise RuntimeError(
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
            f"{dtypes.of(sorter.dtype)}"
        )
    if sorter.size and backend_of(sorter).device_type == "cpu":  # on a GPU it would wait
        if sorter.min() < 0 or sorter.max() >= sequence.shape[-1]:
            raise RuntimeError("torch.searchsorted(): sorter index out of range")


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """In which of the intervals between sorted boundaries each value lies.

    >>> import cugrad as torch
    >>> torch.bucketize(torch.tensor([0.5, 1.0, 9.0]), torch.tensor([1.0, 2.0]))
    tensor([0, 0, 2])
    """
    if array_of(boundaries, "bucketize", "boundaries", 2).ndim != 1:
        raise RuntimeError(
            f"boundaries tensor must be 1 dimension, but got dim({boundaries._array.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


METHODS = {
    name: globals()[name] for name in __all__ if name not in ("bucketize", "isin", "searchsorted")
} | {"sort": _sort_method}
