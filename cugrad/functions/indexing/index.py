"""Indexing and gathering as PyTorch spells them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...backends.several import at_home
from ...ops import dims as D
from ...ops.promotion import fit_scalar
from ...ops.table import TABLE
from ...tensor import Tensor, make
from ..calls.arguments import array_of, fresh, lifted
from .bounds import check_index, check_integers
from .puts import check_dims, check_dtypes, dims_picked, put_at
from .scatter import reach, vector_of
from .subscripts import FULL, parse, picked

__all__ = [
    "argwhere", "gather", "index_select", "masked_select", "nonzero", "take", "take_along_dim",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"argwhere"}


def getitem(self: Tensor, index: Any) -> Tensor:
    """`self[index]`: a view for ints, slices, None and ...; a copy where tensors or masks pick."""
    array = self._array
    if index.__class__ is int:
        n = array.shape[0] if array.ndim else 0
        if -n <= index < n:
            return recorded.select(self, 0, index if index >= 0 else index + n)
    elif index.__class__ is slice and index.step is None and array.ndim:
        start, stop, _ = index.indices(array.shape[0])
        return recorded.slice_view(self, (slice(start, stop if stop > start else start, 1),))
    elif index.__class__ is Tensor and array.ndim:
        picks = index._array
        if type(picks) is type(array) and picks.dtype.kind == "i" and picks.ndim:
            return picked(recorded.index, (self,), (picks,))
    basic, advanced = parse(array, index)
    if basic is not None:
        self = _basic(self, basic)
    return self if advanced is None else picked(recorded.index, (self,), advanced)


def _basic(self: Tensor, index: tuple[Any, ...]) -> Tensor:
    """A view by ints, slices and None, in as few nodes as it takes."""
    steps = [i for i in index if i is not None]
    ints = [d for d, i in enumerate(steps) if i.__class__ is int]
    full = [i for i in steps if i.__class__ is slice and i == FULL]
    if len(ints) == 1 and len(full) == len(steps) - 1:
        self = recorded.select(self, ints[0], steps[ints[0]])
    elif len(full) < len(steps) or len(steps) == len(index):
        self = recorded.slice_view(self, tuple(steps))
    dim = 0
    for i in index:
        if i is None:
            self = recorded.unsqueeze(self, dim)
        dim += i.__class__ is not int
    return self


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`, a tensor that broadcasts to `self[index]`, or a number."""
    array = self._array
    if not isinstance(value, Tensor) and type(value) not in (bool, int, float, complex):
        if getattr(value, "ndim", None) != 0:
            raise TypeError(
                f"can't assign a {type(value).__name__} to a tensor; make it one, for example "
                "torch.tensor(value)"
            )
        value = value.item()
    # what is small fits each dtype as it is
    if not isinstance(value, Tensor) and (type(value) is complex or not 0 <= value <= 127):
        value = _number_for(value, self.dtype)
    basic, advanced = parse(array, index)
    part = self if basic is None else _basic(self, basic)
    if advanced is None:
        apply_inplace(TABLE["copy"], (part, _trimmed(value, part._array.ndim)))
        return
    if not isinstance(value, Tensor):
        number = np.asarray(value).astype(array.dtype).item()  # given to a kernel, not copied
        with at_home(array):
            value = make(backend_of(array).xp.full((), number, array.dtype))
    elif value._array.dtype != array.dtype:
        if array.dtype.kind != "c" and value._array.dtype.kind == "c":
            check_dtypes(self, value)
        value = recorded.to_dtype(value, array.dtype)
    value = _trimmed(value, dims_picked(part._array.ndim, advanced))
    check_dims(value, part._array.ndim, advanced)
    put_at(part, value, advanced, False)


def _number_for(value: Any, kind: dtypes.dtype) -> Any:
    """A Python number as an element of a tensor; RuntimeError if it is out of range."""
    if kind.category == dtypes.BOOL:
        return bool(value)
    dtypes.check_number(value, kind)
    if type(value) is complex and kind.category < dtypes.COMPLEX:
        value = value.real
    return fit_scalar(value, kind)


def _trimmed(value: Any, ndim: int) -> Any:
    """`value` without leading dims of extent 1 beyond `ndim`, which assignment ignores."""
    while isinstance(value, Tensor) and value._array.ndim > ndim and value._array.shape[0] == 1:
        value = recorded.squeeze(value, (0,))
    return value


# Along one dim ------------------------------------------------------------------------------------


@fresh
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on: elements picked along one dim.

    >>> import cugrad as torch
    >>> torch.gather(torch.tensor([[1, 2], [3, 4]]), 1, torch.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    if sparse_grad:
        raise NotImplementedError("gather(): its gradient is dense: leave out sparse_grad=True")
    dim = reach("gather", input, dim, index)
    shape = index._array.shape
    if input._array.ndim and len(shape) == input._array.ndim:
        return recorded.gather(input, index, dim)
    flat = recorded.reshape(input, (input._array.size,))  # 0-d, or an index that names nothing
    if not index._array.size:
        index = recorded.to_dtype(index, "int64")
    picks = recorded.gather(flat, recorded.reshape(index, (index._array.size,)), 0)
    return recorded.reshape(picks, shape)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The places along `dim` that a vector of indices names, in its order.

    >>> import cugrad as torch
    >>> torch.index_select(torch.tensor([[1, 2, 3]]), 1, torch.tensor([2, 0]))
    tensor([[3, 1]])
    """
    array = array_of(input, "index_select")
    dim = D.canonical_dim(dim, array.ndim)
    index = vector_of("index_select", index)
    if not array.ndim:
        return lifted(index_select, input, dim, index)
    check_index("index_select", index, array.shape[dim], dim, IndexError)
    return recorded.index_select(input, index, dim)


@fresh
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flat tensor, in the shape of `index`."""
    array_of(input, "take")
    if array_of(index, "take", "index", 2).dtype.name != "int64":
        raise RuntimeError(
            f"take(): Expected a long tensor for index, but got {dtypes.type_name(index.dtype)}"
        )
    flat = recorded.reshape(input, (input._array.size,))
    if index._array.ndim:
        return getitem(flat, index)
    return recorded.reshape(getitem(flat, recorded.reshape(index, (1,))), ())  # nothing waits


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, where the other dims of input and indices broadcast; flat without `dim`."""
    array = array_of(input, "take_along_dim")
    picks = array_of(indices, "take_along_dim", "indices", 2)
    if dim is not None and picks.ndim != array.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {array.ndim} dimensions for input, and {picks.ndim} dimensions for indices"
        )
    # a tensor without dims is one of a single place
    size = array.size if dim is None else (array.shape or (1,))[D.canonical_dim(dim, array.ndim)]
    if picks.dtype.name != "int64":
        raise RuntimeError(
            "torch.take_along_dim(): dtype of indices should be Long but got "
            f"{dtypes.type_name(indices.dtype)}"
        )
    check_integers("take_along_dim", picks, size, dim or 0, RuntimeError, -size)
    indices = make(picks % max(size, 1))
    if dim is None:
        flat = recorded.reshape(input, (array.size,))
        return gather(flat, 0, recorded.reshape(indices, (picks.size,)))
    dim = D.canonical_dim(dim, array.ndim)
    rest = [s[:dim] + (1,) + s[dim + 1 :] for s in (array.shape, picks.shape)]
    meet = D.broadcast_shapes(*rest)
    wide, tall = ((*meet[:dim], s[dim], *meet[dim + 1 :]) for s in (array.shape, picks.shape))
    input = input if array.shape == wide else recorded.expand(input, wide)
    return gather(input, dim, indices if picks.shape == tall else recorded.expand(indices, tall))


# Masks --------------------------------------------------------------------------------------------


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask is true, in one dim; the two broadcast.

    >>> import cugrad as torch
    >>> torch.masked_select(torch.tensor([1, 2, 3]), torch.tensor([True, False, True]))
    tensor([1, 3])
    """
    array, where = array_of(input, "masked_select"), array_of(mask, "masked_select", "mask", 2)
    if where.dtype.kind != "b":
        raise RuntimeError(
            f"masked_select: expected BoolTensor for mask, got {mask.dtype}; compare first"
        )
    shape = D.broadcast_shapes(array.shape, where.shape)
    input = input if array.shape == shape else recorded.expand(input, shape)
    mask = mask if where.shape == shape else recorded.expand(mask, shape)
    return getitem(input, mask)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of nonzero elements: one a line, or a tuple with a vector for each dim.

    >>> import cugrad as torch
    >>> torch.nonzero(torch.tensor([0, 3, 4]))
    tensor([[1],
            [2]])
    """
    if not as_tuple:
        array_of(input, "nonzero")
        return recorded.nonzero(input)
    if not array_of(input, "nonzero").ndim:
        input = recorded.unsqueeze(input, 0)
    lines = recorded.nonzero(input)
    return tuple([recorded.select(lines, 1, d) for d in range(input._array.ndim)])


argwhere = nonzero


METHODS = {
    **{name: globals()[name] for name in __all__ if not name.endswith("item")},
    "__getitem__": getitem,
    "__setitem__": setitem,
}
