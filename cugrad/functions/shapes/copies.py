"""Copies and joins of tensors as PyTorch spells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...dtypes import check_fits, int64, type_name
from ...errors import NoArray
from ...ops import dims as D
from ...ops.table import TABLE
from ...tensor import Tensor, make
from ..calls.arguments import array_of, check_known, fresh, varargs
from ..calls.declaring import joining
from ..indexing.bounds import is_looked_at
from .views import ravel, reshape

__all__ = [
    "cat", "concat", "concatenate", "flip", "masked_fill", "repeat_interleave",
    "roll", "stack", "tile", "tril", "triu",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"flip", "masked_fill", "repeat_interleave", "roll", "tile"}


def flip(input: Tensor, dims: Any) -> Tensor:
    """A copy with the order of elements along `dims` reversed."""
    array = array_of(input, "flip")
    return recorded.flip(input, D.canonical_dims(dims, array.ndim) if array.ndim else ())


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """A copy with elements shifted along `dims`, the last ones entering at the front.

    >>> import cugrad as torch
    >>> torch.arange(4).roll(1, 0)
    tensor([3, 0, 1, 2])
    """
    ndim = array_of(input, "roll").ndim
    shifts = D.int_tuple(shifts, "shifts")
    if not shifts:
        raise RuntimeError("`shifts` required (roll)")
    if not ndim and dims not in (None, ()):
        raise IndexError(f"Dimension specified as {dims} but tensor has no dimensions (roll)")
    axes = () if dims is None else tuple(
        [D.canonical_dim(d, ndim) for d in D.int_tuple(dims, "dims")]
    )  # fmt: skip
    if len(axes) != len(shifts) and (axes or len(shifts) != 1):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(axes)}"
        )
    return recorded.roll(input, shifts, axes if ndim else ())


def _triangle(function: str, input: Tensor, diagonal: int) -> Tensor:
    if array_of(input, function).ndim < 2:
        raise RuntimeError(f"{function}: input tensor must have at least 2 dimensions")
    return getattr(recorded, function)(input, D.one_int(diagonal, "diagonal"))


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """A copy of each matrix with zeros above a diagonal."""
    return _triangle("tril", input, diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """A copy of each matrix with zeros below a diagonal."""
    return _triangle("triu", input, diagonal)


def repeat(self: Tensor, *times: Any, repeats: Any = None) -> Tensor:
    """The tensor laid beside itself, so many times along each dim; new dims come in front."""
    times = D.int_tuple(varargs(times, repeats), "repeats")
    if len(times) < self._array.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: got {len(times)} for {self._array.ndim}"
        )
    return recorded.repeat(self, times)


def tile(input: Tensor, dims: Any) -> Tensor:
    """As `Tensor.repeat`, where missing repeats in front count as 1."""
    times = D.int_tuple(dims, "dims")
    missing = array_of(input, "tile").ndim - len(times)
    return recorded.repeat(input, (1,) * missing + times)


@fresh
def repeat_interleave(
    input: Tensor | None = None, repeats: Any = None, dim: int | None = None, *,
    output_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Each element repeated in its place, along one dim or in the flat tensor.

    `repeats` is one number, or a vector with one for each place; to know how many there are in all
    waits for a GPU unless `output_size` says so. A vector alone says how often to name its places.

    >>> import cugrad as torch
    >>> torch.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2])
    >>> torch.repeat_interleave(torch.tensor([0, 2, 1]))
    tensor([1, 1, 2])
    """
    if input is None:  # `repeats` alone, by its name
        input, repeats = repeats, None
    array = array_of(input, "repeat_interleave")
    if repeats is None:
        return make(_named_often(array, array.size, output_size))
    if dim is None:
        input, dim = ravel(input), 0
    shape = input._array.shape
    dim = D.canonical_dim(dim, len(shape))
    if isinstance(repeats, Tensor):
        counts = repeats._array
        if counts.ndim > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor (repeat_interleave)")
        if counts.size != 1 and counts.size != shape[dim]:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{counts.size} and input.size({dim}) = {shape[dim]}"
            )
        where = _named_often(counts, shape[dim], output_size)
        return recorded.index_select(input, make(where), dim)
    number = D.one_int(repeats, "repeats")
    if number < 0:
        raise RuntimeError(f"Repeats must be non-negative, got {number} (repeat_interleave)")
    tall = (*shape[: dim + 1], number, *shape[dim + 1 :])
    wide = recorded.expand(recorded.unsqueeze(input, dim + 1), tall)
    # a copy also of one element, which could be shown several times without one
    wide = recorded.clone(wide, "C")
    return reshape(wide, (*shape[:dim], shape[dim] * number, *shape[dim + 1 :]))


def _named_often(counts: Any, places: int, total: int | None) -> Any:
    """The numbers of places, each as often as counts says."""
    if counts.ndim > 1 or counts.dtype.name not in ("int32", "int64"):
        kind = NotImplementedError if counts.dtype.kind not in "iu" else RuntimeError
        raise kind(
            f"repeat_interleave: repeats has to be a vector of Long or Int, got {counts.dtype} of "
            f"shape {list(counts.shape)}"
        )
    xp = backend_of(counts).xp
    if is_looked_at(counts) and counts.size and int(counts.min()) < 0:
        raise RuntimeError("repeats can not be negative (repeat_interleave)")
    ends = xp.cumsum(xp.broadcast_to(counts, (places,))).astype("int64")
    size = total
    if total is None or is_looked_at(counts):
        size = int(ends[-1]) if places else 0
    if total is not None and size != total:
        raise RuntimeError(
            f"allocated size does not match required size: output_size is {total}, want {size}"
        )
    return xp.searchsorted(ends, xp.arange(size), side="right").astype("int64")


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with `value`, a number or 0-d tensor, where `mask` is true."""
    value = _fill(input, mask, value)
    if isinstance(value, Tensor):
        return recorded.where(mask, value, input)
    return recorded.masked_fill(input, mask, value)


def _masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    value = _fill(self, mask, value)
    if isinstance(value, Tensor):
        return recorded.where(mask, value, self)
    return apply_inplace(TABLE["masked_fill"], (self, mask), {"value": value})


def _fill(input: Tensor, mask: Tensor, value: Any) -> Any:
    """The value after the checks, of the kind of the tensor."""
    kind = array_of(input, "masked_fill").dtype.kind
    if array_of(mask, "masked_fill", "mask", 2).dtype.kind != "b":
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{type_name(mask.dtype).lower()}"
        )
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value._array.ndim} dimension(s)."
            )
        if value._array.dtype.kind == "c" and kind != "c":
            check_fits(value.item(), input.dtype)
            value = value.real
        if value._array.dtype != input._array.dtype:
            check_known(value, input.dtype)
            value = recorded.to_dtype(value, input._array.dtype)
        return value
    check_fits(value, input.dtype)
    value = value.real if kind != "c" and isinstance(value, complex) else value
    return {"b": bool, "i": int, "u": int, "c": complex}.get(kind, float)(value)


# In place, or what is to be copied there; see maths/inplace.py.
CHANGES: dict[str, Callable[..., Tensor]] = {"masked_fill_": _masked_fill_}


# Joining ------------------------------------------------------------------------------------------


@joining
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one behind the other along an existing dim.

    >>> import cugrad as torch
    >>> torch.cat([torch.zeros(2, 3), torch.ones(1, 3)]).shape
    torch.Size([3, 3])
    """
    return _joined(tensors, dim, "cat")


@joining
def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one behind the other along an existing dim: `cat` by another name."""
    return _joined(tensors, dim, "concat")


@joining
def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one behind the other along an existing dim: `cat` by another name."""
    return _joined(tensors, dim, "concatenate")


def _joined(tensors: Sequence[Tensor], dim: int, name: str) -> Tensor:
    if isinstance(tensors, Tensor):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        )
    try:
        shapes = [x._array.shape for x in tensors]
    except (AttributeError, NoArray):
        shapes = [array_of(x, name, "tensors").shape for x in tensors]
    if not shapes:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    first, empty = shapes[0], []
    differ = shapes.count(first) < len(shapes)
    if differ:
        empty = [x for x, s in zip(tensors, shapes) if s == (0,)]
        joined = [(x, s) for x, s in zip(tensors, shapes) if s != (0,)]
        tensors, shapes = (list(column) for column in zip(*joined))  # (0,) joins with everything
        first, kind = shapes[0], tensors[0].dtype
        empty = [x for x in empty if x._requires_grad or x.dtype is not kind]
    if not first:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = D.canonical_dim(dim, len(first))
    for i, shape in enumerate(shapes if differ else ()):
        if shape != first:
            _check_joins(first, shape, dim, i)
    if empty:  # of them the result has the dtype alone; their gradients are empty, not absent
        like = (*first[:dim], 0, *first[dim + 1 :])
        tensors = [*tensors, *[x.reshape(like) for x in empty]]
    return recorded.cat(tensors, dim)


def _check_joins(first: tuple[int, ...], shape: tuple[int, ...], dim: int, number: int) -> None:
    if len(shape) != len(first):
        raise RuntimeError(
            f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}"
        )
    for d, (a, b) in enumerate(zip(first, shape)):
        if a != b and d != dim:
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {dim}. Expected size {a} but "
                f"got size {b} for tensor number {number} in the list."
            )


@joining
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dim."""
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = array_of(tensors[0], "stack", "tensors").shape
    for i, x in enumerate(tensors):
        shape = array_of(x, "stack", "tensors").shape
        if shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(shape)} at entry {i}"
            )
    return recorded.stack(tensors, D.canonical_dim(dim, len(first) + 1))


# Methods ------------------------------------------------------------------------------------------


def _flip(self: Tensor, *listed: Any, dims: Any = None) -> Tensor:
    """A copy with the order of elements along `dims` reversed."""
    return flip(self, varargs(listed, dims))


def _reversed(self: Tensor) -> Tensor:
    """`reversed(x)`: a copy with the order along dim 0 reversed; of a number, itself."""
    return flip(self, (0,)) if self._array.ndim else self


def _tile(self: Tensor, *listed: Any, dims: Any = None) -> Tensor:
    """As `Tensor.repeat`, where missing repeats in front count as 1."""
    return tile(self, varargs(listed, dims))


def _sum_to_size(self: Tensor, size: Any = (), *more: int) -> Tensor:
    """The sum over dims that broadcasting repeated: what takes a gradient back to `size`."""
    target = D.int_tuple((size, *more) if more else varargs((size,)), "size")
    shape = self._array.shape
    if target == shape and target:
        return self
    lead = len(shape) - len(target)
    if lead < 0 or [n for n, m in zip(target, shape[lead:]) if n not in (1, m)]:
        raise RuntimeError(f"size {{{list(target)}}} is not expandable to size {{{list(shape)}}}.")
    if self._array.dtype.kind in "bui":
        self = recorded.to_dtype(self, int64.numpy)
    return recorded.sum_to_shape(self, target)


METHODS = {
    "flip": _flip,
    "masked_fill": masked_fill,
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
    "roll": roll,
    "sum_to_size": _sum_to_size,
    "tile": _tile,
    "__reversed__": _reversed,
    "tril": tril,
    "triu": triu,
}
