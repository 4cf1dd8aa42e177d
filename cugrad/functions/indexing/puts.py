"""Values put, or added, at any places that index tensors name, and where a mask is true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...autograd.autocast import autocasts
from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...backends.several import are_away, at_home, several
from ...dtypes import bool_, is_differentiable, type_name
from ...ops import dims as D
from ...ops.index import is_mask
from ...ops.table import TABLE
from ...tensor import Tensor, make
from ..calls.arguments import array_of, fresh
from .bounds import check_integers, is_looked_at
from .subscripts import parse, picked

__all__ = ["index_put", "masked_scatter", "put"]


def dims_picked(ndim: int, indices: Iterable[Any]) -> int:
    """How many dims has what canonical indices, arrays among full slices, pick from `ndim` dims."""
    arrays = [(x.ndim, is_mask(x)) for x in indices if x.__class__ is not slice]
    used = sum(dims if masks else 1 for dims, masks in arrays)
    return ndim - used + max([1 if masks else dims for dims, masks in arrays], default=0)


def check_dims(values: Tensor, ndim: int, indices: Iterable[Any]) -> None:
    """RuntimeError for values of more dims than what indices pick."""
    dims = dims_picked(ndim, indices)
    if values._array.ndim > dims:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of {dims} dimensions"
        )


def check_dtypes(input: Tensor, values: Tensor) -> None:
    """RuntimeError for values of another dtype than what they are put in."""
    if values._array.dtype != input._array.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{type_name(input.dtype)} for the destination and {type_name(values.dtype)} for the "
            "source."
        )


def _put_arguments(
    input: Tensor, indices: Any, values: Tensor, accumulate: bool
) -> tuple[Tensor, tuple[Any, ...]]:
    """The values in the dtype of the tensor, and the canonical indices."""
    array = array_of(input, "index_put")
    if isinstance(indices, Tensor) or not isinstance(indices, (tuple, list)):
        raise TypeError(
            "index_put(): argument 'indices' (position 2) must be tuple of Tensors, not "
            f"{type(indices).__name__}"
        )
    if len(indices) > array.ndim:
        raise IndexError(
            f"too many indices for tensor of dimension {array.ndim} (got {len(indices)})"
        )
    _, advanced = parse(array, tuple(indices), only_advanced=True)
    tensors = [x for x in indices if x is not None]
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(
                "index_put(): argument 'indices' (position 2) must be tuple of Tensors, but one "
                f"is {type(x).__name__}"
            )
    array_of(values, "index_put", "values", 3)
    fills = len(tensors) == 1 and tensors[0].dtype == bool_ and not accumulate
    fits = array.dtype.kind == "c" or not values.is_complex()
    if fills and fits and values._array.size == 1:
        # as `masked_fill` takes it
        values = recorded.reshape(recorded.to_dtype(values, array.dtype), ())
    else:
        check_dims(values, array.ndim, advanced or ())
    check_dtypes(input, values)
    return values, advanced or ()


@autocasts
def index_put(
    input: Tensor, indices: tuple[Any, ...], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with `values` at `indices`, a tuple of index tensors or masks; or added to them.

    >>> import cugrad as torch
    >>> torch.index_put(torch.zeros(3), (torch.tensor([0, 0]),), torch.ones(2), accumulate=True)
    tensor([2., 0., 0.])
    """
    values, advanced = _put_arguments(input, indices, values, accumulate)
    return picked(recorded.index_put, (input, values), advanced, accumulate)


def index_put_(
    self: Tensor, indices: tuple[Any, ...], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`index_put` with its result in the place of this tensor, which is returned."""
    values, advanced = _put_arguments(self, indices, values, accumulate)
    return put_at(self, values, advanced, accumulate)


def put_at(self: Tensor, values: Tensor, indices: Any, accumulate: bool) -> Tensor:
    """`values` put in place at canonical indices."""

    def call(self: Tensor, values: Tensor, indices: Any) -> Tensor:
        params = {"indices": indices, "accumulate": accumulate}
        return apply_inplace(TABLE["index_put"], (self, values), params)

    return picked(call, (self, values), indices)


@fresh
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with the elements of `source` at places of the flat tensor, or added to them.

    >>> import cugrad as torch
    >>> torch.put(torch.zeros(2, 2), torch.tensor([3, 0]), torch.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 1.]])
    """
    array = array_of(input, "put_")
    where, values = array_of(index, "put_", "index", 2), array_of(source, "put_", "source", 3)
    if where.dtype.name != "int64":
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {type_name(index.dtype)}"
        )
    if values.dtype != array.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{type_name(input.dtype)} and source.dtype = {type_name(source.dtype)}"
        )
    if where.size != values.size:
        raise RuntimeError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {values.size}, index.numel() = {where.size}"
        )
    if not where.size:
        return recorded.clone(input)
    check_integers("put_", where, array.size, 0, IndexError, -array.size)
    flat, source = (recorded.reshape(x, (x._array.size,)) for x in (input, source))
    out = picked(recorded.index_put, (flat, source), (where.reshape(-1),), accumulate)
    return recorded.reshape(out, array.shape)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy whose elements under a mask are those of `source`, in order.

    >>> import cugrad as torch
    >>> mask = torch.tensor([True, False, True])
    >>> torch.masked_scatter(torch.zeros(3), mask, torch.tensor([1., 2.]))
    tensor([1., 0., 2.])
    """
    array = array_of(input, "masked_scatter")
    where = array_of(mask, "masked_scatter", "mask", 2)
    values = array_of(source, "masked_scatter", "source", 3)
    if values.dtype != array.dtype:
        raise RuntimeError(
            "masked_scatter_: expected self and source to have same dtypes but got "
            f"{type_name(input.dtype)} and {type_name(source.dtype)}"
        )
    if where.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got {mask.dtype}")
    shape = D.broadcast_shapes(array.shape, where.shape)
    if several.devices and are_away([where]):
        with at_home(where):
            return masked_scatter(input, mask, source)
    xp = backend_of(where).xp
    where = where if where.shape == shape else xp.broadcast_to(where, shape)
    order = xp.cumsum(where.reshape(-1)).astype("int64")
    if is_looked_at(order) and order.size and int(order[-1]) > values.size:
        raise RuntimeError(
            "masked_scatter: expected self and source to have at least as many elements as the "
            f"mask has ones, {int(order[-1])}, but source has {values.size}"
        )
    if not values.size:  # there is nothing to take, but a graph
        if not is_differentiable(values.dtype):
            return recorded.clone(recorded.expand(input, shape))
        return recorded.where(make(where), recorded.sum(source), input)
    order = xp.clip(order - 1, 0, values.size - 1)  # what stands before the first one is not used
    flat = recorded.reshape(source, (values.size,))
    chosen = recorded.reshape(recorded.index_select(flat, make(order), 0), shape)
    return recorded.where(make(where), chosen, input)


METHODS = {
    "index_put": index_put, "index_put_": index_put_, "masked_scatter": masked_scatter, "put": put,
}  # fmt: skip
