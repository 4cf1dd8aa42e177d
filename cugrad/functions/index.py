"""Indexing, gathering and scattering as PyTorch spells them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.inplace import apply_inplace
from ..autograd.record import recorded
from ..backends import backend_of
from ..ops import dims as D
from ..ops.table import TABLE
from ..tensor import Tensor, make
from .arguments import array_of, lifted
from .subscripts import FULL, parse, picked

__all__ = [
    "argwhere", "gather", "getitem", "index_add", "index_fill", "index_put",
    "index_select", "masked_select", "nonzero", "scatter", "scatter_add", "setitem", "take",
    "take_along_dim",
]  # fmt: skip


def getitem(self: Tensor, index: Any) -> Tensor:
    """`self[index]`: a view for ints, slices, None and ...; a copy where tensors or masks pick."""
    array = self._array
    if index.__class__ is int:
        n = array.shape[0] if array.ndim else 0
        if -n <= index < n:
            return recorded.select(self, 0, index if index >= 0 else index + n)
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
    basic, advanced = parse(array, index)
    part = self if basic is None else _basic(self, basic)
    if advanced is None:
        apply_inplace(TABLE["copy"], (part, _trimmed(value, part._array.ndim)))
        return
    if not isinstance(value, Tensor):
        value = make(backend_of(array).asarray(value).astype(array.dtype))
    elif value._array.dtype != array.dtype:
        value = recorded.to_dtype(value, array.dtype)
    picked(_index_put_, (part, value), advanced, False)


def _trimmed(value: Any, ndim: int) -> Any:
    """`value` without leading dims of extent 1 beyond `ndim`, which assignment ignores."""
    while isinstance(value, Tensor) and value._array.ndim > ndim and value._array.shape[0] == 1:
        value = recorded.squeeze(value, (0,))
    return value


def _index_put_(self: Tensor, values: Tensor, indices: Any, accumulate: bool) -> Tensor:
    params = {"indices": indices, "accumulate": accumulate}
    return apply_inplace(TABLE["index_put"], (self, values), params)


def index_put(
    input: Tensor, indices: tuple[Any, ...], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with `values` at `indices`, a tuple of index tensors or masks; or added to them.

    >>> import cugrad as torch
    >>> torch.index_put(torch.zeros(3), (torch.tensor([0, 0]),), torch.ones(2), accumulate=True)
    tensor([2., 0., 0.])
    """
    array = array_of(input, "index_put")
    _, advanced = parse(array, tuple(indices), only_advanced=True)
    kind = array_of(values, "index_put", "values", 3).dtype
    if kind != array.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{input.dtype} for the destination and {values.dtype} for the source."
        )
    return picked(recorded.index_put, (input, values), advanced or (), accumulate)


# Along one dim ------------------------------------------------------------------------------------


def _check_index(
    function: str, index: Any, size: int, dim: int, error: type[Exception] = RuntimeError
) -> None:
    """Refuses an index array that is no integers, or, on the host, one that points outside."""
    array = index._array
    if array.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"{function}(): Expected dtype int32/int64 for index, got {index.dtype}")
    if isinstance(array, np.ndarray) and array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= size:
            raise error(
                f"index {low if low < 0 else high} is out of bounds for dimension {dim} "
                f"with size {size}"
            )


def _reach(function: str, input: Tensor, dim: int, index: Tensor) -> int:
    """The checks that gather and scatter share; the canonical dim."""
    shape = array_of(input, function).shape
    reach = array_of(index, function, "index", 3).shape
    dim = D.canonical_dim(dim, len(shape))
    if len(reach) != len(shape):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for d, (n, m) in enumerate(zip(reach, shape)):
        if d != dim and n > m:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(reach)} to be no "
                f"larger than self {list(shape)} apart from dimension {dim}"
            )
    _check_index(function, index, shape[dim] if shape else 1, dim)
    return dim


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on: elements picked along one dim.

    >>> import cugrad as torch
    >>> torch.gather(torch.tensor([[1, 2], [3, 4]]), 1, torch.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    dim = _reach("gather", input, dim, index)
    if not input._array.ndim:
        return recorded.reshape(
            recorded.gather(recorded.unsqueeze(input, 0), recorded.unsqueeze(index, 0), 0), ()
        )
    return recorded.gather(input, index, dim)


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: float | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with out[index[i][j]][j] = src[i][j] for dim 0, and so on; src may be a number.

    `reduce="add"` adds instead, as `scatter_add` does.

    >>> import cugrad as torch
    >>> torch.scatter(torch.zeros(1, 3), 1, torch.tensor([[2]]), 5.0)
    tensor([[0., 0., 5.]])
    """
    dim = _reach("scatter", input, dim, index)
    src = value if src is None else src
    if not isinstance(src, Tensor):
        if src is None:
            raise TypeError("scatter() wants src, a Tensor, or value, a number")
        src = recorded.to_dtype(recorded.zero_like(index), input._array.dtype) + src
    if reduce == "add":
        return scatter_add(input, dim, index, src)
    if reduce is not None:
        raise RuntimeError(f"scatter: got reduce={reduce!r}, want None or 'add'")
    return _scattered("scatter", input, dim, index, src)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with out[index[i][j]][j] += src[i][j] for dim 0, and so on; duplicates add up."""
    dim = _reach("scatter_add", input, dim, index)
    return _scattered("scatter_add", input, dim, index, src)


def _scattered(function: str, input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    shape = array_of(src, function, "src", 4).shape
    reach = index._array.shape
    if len(shape) != len(reach) or any(n > m for n, m in zip(reach, shape)):
        raise RuntimeError(
            f"{function}: Expected index {list(reach)} to be no larger than src {list(shape)}"
        )
    if src._array.dtype != input._array.dtype:
        raise RuntimeError(
            f"{function}(): Expected self.dtype to be equal to src.dtype, got {input.dtype} and "
            f"{src.dtype}"
        )
    row = getattr(recorded, function)
    if not input._array.ndim:
        ones = [recorded.unsqueeze(x, 0) for x in (input, index, src)]
        return recorded.reshape(row(*ones, 0), ())
    return row(input, index, src, dim)


def _vector(function: str, index: Tensor) -> Tensor:
    ndim = array_of(index, function, "index", 3).ndim
    if ndim > 1:
        raise IndexError(
            f"{function}(): Index is supposed to be a vector, but got dim: {ndim} "
            f"and size: {list(index._array.shape)}"
        )
    return index if ndim else recorded.unsqueeze(index, 0)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The places along `dim` that a vector of indices names, in its order.

    >>> import cugrad as torch
    >>> torch.index_select(torch.tensor([[1, 2, 3]]), 1, torch.tensor([2, 0]))
    tensor([[3, 1]])
    """
    array = array_of(input, "index_select")
    dim = D.canonical_dim(dim, array.ndim)
    index = _vector("index_select", index)
    if not array.ndim:
        return lifted(index_select, input, dim, index)
    _check_index("index_select", index, array.shape[dim], dim, IndexError)
    return recorded.index_select(input, index, dim)


def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """A copy to which alpha * source is added at the places along `dim` that `index` names."""
    array = array_of(input, "index_add")
    dim = D.canonical_dim(dim, array.ndim)
    index = _vector("index_add", index)
    _check_index("index_add", index, array.shape[dim], dim)
    shape = list(array.shape)
    shape[dim] = index._array.shape[0]
    if list(array_of(source, "index_add", "source", 4).shape) != shape:
        raise RuntimeError(
            f"index_add(): got source of shape {list(source._array.shape)}, want {shape}: the "
            f"shape of self with as many places along dim {dim} as index has entries"
        )
    if source._array.dtype != array.dtype:
        raise RuntimeError(
            "index_add(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype} and (source) {source.dtype}"
        )
    return recorded.index_add(input, index, source, dim, alpha)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with a number at the places along `dim` that `index` names."""
    array = array_of(input, "index_fill")
    dim = D.canonical_dim(dim, array.ndim)
    index = _vector("index_fill", index)
    _check_index("index_fill", index, array.shape[dim], dim, IndexError)
    indices = (*(FULL,) * dim, index._array)
    if not isinstance(value, Tensor):
        value = make(backend_of(array).asarray(value, array.dtype))
    return picked(recorded.index_put, (input, value), indices)


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flat tensor, in the shape of `index`."""
    array_of(input, "take")
    return getitem(recorded.reshape(input, (input._array.size,)), index)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, where the other dims of input and indices broadcast; flat without `dim`."""
    array = array_of(input, "take_along_dim")
    picks = array_of(indices, "take_along_dim", "indices", 2)
    if dim is None:
        flat = recorded.reshape(input, (array.size,))
        return gather(flat, 0, recorded.reshape(indices, (picks.size,)))
    dim = D.canonical_dim(dim, array.ndim)
    if picks.ndim != array.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {array.ndim} dimensions for input, and {picks.ndim} dimensions for indices"
        )
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
