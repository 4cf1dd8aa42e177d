"""Values put, added or reduced into places that index tensors or masks name, as PyTorch has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.autocast import autocasts
from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...backends.several import at_home
from ...dtypes import check_fits, is_differentiable, type_name
from ...ops import dims as D
from ...ops.table import TABLE
from ...tensor import Tensor, make
from ..calls.arguments import array_of, as_own, check_known, fresh, of_reals
from .bounds import check_index, check_integers
from .puts import put_at
from .subscripts import FULL, picked

__all__ = [
    "index_add", "index_copy", "index_fill", "index_reduce", "scatter", "scatter_add",
    "scatter_reduce",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"index_fill"}

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def reach(function: str, input: Tensor, dim: int, index: Tensor) -> int:
    """The checks that gather and scatter share; the canonical dim."""
    of = "input" if function == "gather" else "self"
    shape = array_of(input, function).shape
    extents = array_of(index, function, "index", 3).shape
    dim = D.canonical_dim(dim, len(shape))
    if not index._array.size:
        check_index(function, index, 0, dim)
        return dim
    if len(extents) != len(shape) and max(len(extents), len(shape)) > 1:
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as {of} tensor "
            f"({function}: got {len(extents)} and {len(shape)})"
        )
    for d, (n, m) in enumerate(zip(extents, shape)):
        if d != dim and n > m:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(extents)} to be no "
                f"larger than self {list(shape)} apart from dimension {dim}"
            )
    check_index(function, index, shape[dim] if shape else 1, dim)
    return dim


# Along one dim, element by element ----------------------------------------------------------------


def _source(function: str, input: Tensor, index: Tensor, src: Any, value: Any) -> Tensor:
    """The values to place: a tensor, or a number for every index."""
    src = value if src is None else src
    if isinstance(src, Tensor):
        return src
    if src is None:
        raise TypeError(f"{function}() wants src, a Tensor, or value, a number")
    check_fits(src, input.dtype)
    backend, array = backend_of(input._array), input._array
    with at_home(array):
        return make(backend.xp.broadcast_to(_number(array, src), index._array.shape))


def _number(array: Any, value: Any) -> Any:
    """A number as an array without dims, of the dtype of an array and beside it."""
    value = np.asarray(value).astype(array.dtype).item()
    return backend_of(array).xp.full((), value, array.dtype)


Run = Callable[..., Tensor]  # of the name of a row, its tensors and its parameters


def _new(name: str, tensors: tuple[Tensor, ...], *params: Any) -> Tensor:
    """A row, whose result is new."""
    result: Tensor = getattr(recorded, name)(*tensors, *params)
    return result


def _over(name: str, tensors: tuple[Tensor, ...], *params: Any) -> Tensor:
    """A row with its result in the place of the first tensor, which is answered."""
    op = TABLE[name]
    return apply_inplace(op, tensors, {**op.defaults, **dict(zip(op.params, params))})


def _along(
    name: str, function: str, input: Tensor, dim: int, index: Tensor, src: Tensor, *rest: Any,
    run: Run = _new,
) -> Tensor:  # fmt: skip
    """The row `name` after the checks of scatter."""
    dim = reach(function, input, dim, index)
    shape, extents = array_of(src, function, "src", 4).shape, index._array.shape
    if src._array.dtype != input._array.dtype:
        raise RuntimeError(
            f"{function}(): Expected self.dtype to be equal to src.dtype, got {input.dtype} and "
            f"{src.dtype}"
        )
    if not index._array.size:
        return _of_nothing(input, src)
    if max(len(shape), 1) != max(len(extents), 1):
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as src tensor "
            f"({function}: got {len(extents)} and {len(shape)})"
        )
    if any(n > m for n, m in zip(extents or (1,), shape or (1,))):
        raise RuntimeError(
            f"Expected index {list(extents)} to be no larger than self {list(input._array.shape)} "
            f"apart from dimension {dim} and to be no larger size than src {list(shape)} "
            f"({function})"
        )
    return _restored(run(name, (_tall(input), _tall(index), _tall(src)), dim, *rest), input)


def _of_nothing(input: Tensor, src: Tensor) -> Tensor:
    """A copy of `input`, made of `src` as well, of which no element is placed."""
    tall, parts = _tall(input), _tall(src)
    if len(tall._array.shape) != len(parts._array.shape):
        return recorded.clone(input)
    with at_home(tall._array):
        nowhere = make(backend_of(tall._array).xp.zeros((0,) * len(tall._array.shape), "int64"))
    return _restored(recorded.scatter_add(tall, nowhere, parts, 0), input)


def _tall(x: Tensor) -> Tensor:
    """A tensor with at least one dim."""
    return x if x._array.ndim else recorded.unsqueeze(x, 0)


@fresh
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with out[index[i][j]][j] = src[i][j] for dim 0, and so on; src may be a number.

    `reduce` says "add" or "multiply" for what is done instead.

    >>> import cugrad as torch
    >>> torch.scatter(torch.zeros(1, 3), 1, torch.tensor([[2]]), 5.0)
    tensor([[0., 0., 5.]])
    """
    return _scattered(input, dim, index, src, value, reduce, _new)


def _scattered(
    input: Tensor, dim: int, index: Tensor, src: Any, value: Any, reduce: str | None, run: Run
) -> Tensor:
    array_of(input, "scatter"), array_of(index, "scatter", "index", 3)
    src = _source("scatter", input, index, src, value)
    if reduce == "add":
        return _along("scatter_add", "scatter", input, dim, index, src, run=run)
    if reduce == "multiply":
        return _along("scatter_reduce", "scatter", input, dim, index, src, "prod")
    if reduce is not None:
        raise RuntimeError(
            f"reduce argument must be either add or multiply, got {reduce!r} (scatter)"
        )
    return _along("scatter", "scatter", input, dim, index, src, run=run)


@autocasts
@fresh
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with out[index[i][j]][j] += src[i][j] for dim 0, and so on; duplicates add up."""
    return _along("scatter_add", "scatter_add", input, dim, index, src)


@fresh
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """As `scatter`, where all that goes to one place is reduced: sum, prod, mean, amax or amin.

    Without `include_self` what was there before takes no part, where an index points to it.

    >>> import cugrad as torch
    >>> x, index = torch.tensor([5., 1.]), torch.tensor([0, 0, 1])
    >>> torch.scatter_reduce(x, 0, index, torch.tensor([1., 2., 3.]), "amax")
    tensor([5., 3.])
    """
    if reduce not in REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce} "
            "(scatter_reduce)"
        )
    name = "scatter_reduce"
    if reduce in ("amax", "amin") and input.is_complex():
        raise NotImplementedError(f"{name}: {reduce} is not there for {input.dtype}")
    if reduce not in ("sum", "mean"):
        return _along(name, name, input, dim, index, src, reduce, include_self)
    if not include_self and index._array.size:
        input = _cleared(input, reach(name, input, dim, index), index)
    total = _along("scatter_add", name, input, dim, index, src)
    if reduce == "sum":
        return total
    one = recorded.new_ones(src, src._array.shape)
    start = recorded.new_ones(total, total._array.shape)
    if not include_self:
        start = recorded.zero_like(start)
    count = _along("scatter_add", name, start, dim, index, one)
    if not include_self:
        count = recorded.masked_fill(count, recorded.eq(count, 0), 1)
    if is_differentiable(total._array.dtype):
        return recorded.div(total, count)
    return recorded.floor_divide(total, count)


def _cleared(input: Tensor, dim: int, index: Tensor) -> Tensor:
    return _restored(recorded.scatter_zero(_tall(input), _tall(index), dim), input)


# Along one dim, slice by slice --------------------------------------------------------------------


def vector_of(function: str, index: Tensor) -> Tensor:
    """An index of at most one dim, as a vector."""
    ndim = array_of(index, function, "index", 3).ndim
    if ndim > 1:
        raise IndexError(
            f"{function}(): Index is supposed to be a vector, but got dim: {ndim} "
            f"and size: {list(index._array.shape)}"
        )
    return _tall(index)


def _slices(
    function: str, input: Tensor, dim: int, index: Tensor, source: Tensor,
    outside: type[Exception], error: type[Exception] = RuntimeError, alike: bool = True,
) -> tuple[Tensor, int, Tensor, Tensor]:  # fmt: skip
    """input, dim, index and source after the checks, all with at least one dim.

    `outside` is raised for an index that points outside, `error` for shapes that do not fit.
    `alike`: input and source have equally many dims; else one without counts as one with one.
    """
    array = array_of(input, function)
    dim = D.canonical_dim(dim, array.ndim)
    index = vector_of(function, index)
    kind = array_of(source, function, "source", 4).dtype
    if kind != array.dtype:
        raise RuntimeError(
            f"{function}(): self and source expected to have the same dtype, but got (self) "
            f"{type_name(input.dtype)} and (source) {type_name(source.dtype)}"
        )
    check_index(function, index, array.shape[dim] if array.ndim else 1, dim, outside)
    many = source._array.ndim
    input, source = _tall(input), _tall(source)
    shape = list(input._array.shape)
    shape[dim] = index._array.shape[0]
    if list(source._array.shape) != shape or alike and many != array.ndim:
        raise error(
            f"{function}(): got source of shape {list(source._array.shape)}, want {shape}: the "
            f"shape of self with as many places along dim {dim} as index has entries"
        )
    return input, dim, index, source


def _restored(out: Tensor, input: Tensor) -> Tensor:
    return out if input._array.ndim else recorded.reshape(out, ())


@fresh
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """A copy to which alpha * source is added at the places along `dim` that `index` names.

    >>> import cugrad as torch
    >>> torch.index_add(torch.zeros(3), 0, torch.tensor([0, 0]), torch.ones(2))
    tensor([2., 0., 0.])
    """
    return _index_added(input, dim, index, source, alpha, _new)


def _index_added(
    input: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any, run: Run
) -> Tensor:
    outside = RuntimeError if input.dim() > 1 else IndexError  # as PyTorch has it
    tall, dim, index, source = _slices("index_add", input, dim, index, source, outside)
    return _restored(run("index_add", (tall, index, source), dim, alpha), input)


@autocasts
@fresh
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with the slices of `source` at the places along `dim` that `index` names."""
    tall, source, places = _copied_slices(input, dim, index, source)
    tall = tall.contiguous()  # which alone its layout follows
    return _restored(picked(recorded.index_put, (tall, source), places), input)


def _copied_slices(
    input: Tensor, dim: int, index: Tensor, source: Tensor
) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
    checked = _slices("index_copy", input, dim, index, source, IndexError, IndexError, alike=False)
    tall, dim, index, source = checked
    return tall, source, (*(FULL,) * dim, index._array)


@fresh
@of_reals
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """As `index_add`, for the reductions prod, mean, amax and amin.

    >>> import cugrad as torch
    >>> x, index = torch.tensor([2., 3.]), torch.tensor([0, 0])
    >>> torch.index_reduce(x, 0, index, torch.tensor([5., 7.]), "prod")
    tensor([70.,  3.])
    """
    if reduce not in REDUCTIONS[1:]:
        raise RuntimeError(
            f"reduce argument must be either prod, mean, amax or amin, got {reduce} (index_reduce)"
        )
    tall, dim, index, source = _slices("index_reduce", input, dim, index, source, IndexError)
    shape = source._array.shape
    if not source._array.size:  # there is nothing to reduce, but a graph
        return _restored(recorded.index_add(tall, index, source, dim, 1), input)
    column = index._array.reshape((-1,) + (1,) * (len(shape) - dim - 1))
    wide = make(backend_of(column).xp.broadcast_to(column, shape))
    out = scatter_reduce(tall, dim, wide, source, reduce, include_self=include_self)
    return _restored(out, input)


@fresh
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with a number, or 0-d tensor, at the places along `dim` that `index` names."""
    dim, index, value = _filled_slices(input, dim, index, value)
    array = input._array
    size = array.shape[dim] if array.ndim else 1
    tall = input if array.ndim else recorded.unsqueeze(input, 0)
    # what is filled lies as the input does, and a mask's result as C has it
    strides = tall._array.strides
    order = sorted(range(len(strides)), key=lambda k: -abs(strides[k]))
    is_expanded = any(stride == 0 and n > 1 for stride, n in zip(strides, tall._array.shape))
    is_turned = not is_expanded and order != [*range(len(order))]
    if is_turned:
        tall, dim = recorded.permute(tall, order), order.index(dim)
    mask = recorded.reshape(recorded.named_by(index, size), (size,) + (1,) * (tall.dim() - dim - 1))
    if isinstance(value, Tensor):
        out = recorded.where(mask, value, tall)
    else:
        out = recorded.masked_fill(tall, mask, value)
    if is_turned:
        out = as_own(recorded.permute(out, [order.index(k) for k in range(len(order))]), ())
    return _restored(out, input)


def _filled_slices(input: Tensor, dim: int, index: Tensor, value: Any) -> tuple[int, Tensor, Any]:
    """The arguments after the checks: the value of the right dtype, a number as Python has it."""
    array = array_of(input, "index_fill")
    dim = D.canonical_dim(dim, array.ndim)
    index = vector_of("index_fill", index)
    if index._array.dtype.name != "int64":
        raise IndexError(f"index_fill_(): Expected dtype int64 for index, got {index.dtype}")
    size = array.shape[dim] if array.ndim else 1
    check_integers("index_fill", index._array, size, dim, IndexError, -size)
    is_complex = value.is_complex() if isinstance(value, Tensor) else type(value) is complex
    if is_complex and array.dtype.kind != "c":
        raise RuntimeError(
            f"index_fill_(): Converting complex Scalar to non-complex type is not supported: "
            f"got {value} for {input.dtype}"
        )
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value._array.ndim} dimension(s)."
            )
        if value._array.dtype != array.dtype:
            check_known(value, input.dtype)
            value = recorded.to_dtype(value, array.dtype)
    else:
        check_fits(value, input.dtype)
        value = np.asarray(value).astype(array.dtype).item()
    return dim, index, value


# In place, without a copy -------------------------------------------------------------------------
# Each is called with a tensor that has dims; of a result that is not written where the tensor lies
# it answers a new one.


def _scatter_(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
    reduce: str | None = None,
) -> Tensor:  # fmt: skip
    return _scattered(self, dim, index, src, value, reduce, _over)


def _scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _along("scatter_add", "scatter_add", self, dim, index, src, run=_over)


def _index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    return _index_added(self, dim, index, source, alpha, _over)


def _index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    tall, source, places = _copied_slices(self, dim, index, source)
    return put_at(tall, source, places, False)


def _index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):  # its gradient counts a slice that is named twice once
        return index_fill(self, dim, index, value)
    dim, index, value = _filled_slices(self, dim, index, value)
    with at_home(self._array):
        number = make(_number(self._array, value))
    return put_at(self, number, (*(FULL,) * dim, index._array), False)


CHANGES: dict[str, Callable[..., Tensor]] = {
    "scatter_": _scatter_, "scatter_add_": _scatter_add_, "index_add_": _index_add_,
    "index_copy_": _index_copy_, "index_fill_": _index_fill_,
}  # fmt: skip

METHODS = {name: globals()[name] for name in __all__}
