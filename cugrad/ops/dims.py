"""Dimensions and shapes as users say them, made canonical or refused with PyTorch's errors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from ..runtime.frames import called

__all__ = [
    "broadcast_shapes", "canonical_dim", "canonical_dims", "contiguous_strides", "inferred_shape",
    "int_tuple", "keeps_order", "one_int", "reduced_dims", "view_strides",
]  # fmt: skip

Shape = tuple[int, ...]


def canonical_dim(dim: Any, ndim: int) -> int:
    """`dim` counted from the front; a 0-d tensor takes 0 and -1, as if it had one dimension.

    >>> canonical_dim(-1, 3)
    2
    """
    span = ndim or 1
    i = dim if dim.__class__ is int else one_int(dim, "dim")
    if not -span <= i < span:
        raise IndexError(
            "Dimension out of range (expected to be in range of "
            f"[{-span}, {span - 1}], but got {i})"
        )
    return i + span if i < 0 else i


def canonical_dims(dims: Any, ndim: int) -> Shape:
    """One dim or several, counted from the front; RuntimeError where one is named twice.

    >>> canonical_dims((0, -1), 3)
    (0, 2)
    """
    if not isinstance(dims, Iterable) or getattr(dims, "ndim", 1) == 0:
        dims = (dims,)
    axes = tuple(canonical_dim(d, ndim) for d in dims)
    if len(set(axes)) < len(axes):
        twice = next(d for i, d in enumerate(axes) if d in axes[:i])
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return axes


def inverse_dims(dims: Shape) -> Shape:
    """The permutation that takes `dims` back: x.permute(dims).permute(inverse_dims(dims)) is x."""
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


def reduced_dims(dim: Any, ndim: int) -> Shape | None:
    """The dims that a reduction runs over, None for all of them, as `None` and `()` both say."""
    if dim is None:
        return None
    if dim.__class__ is int and 0 <= dim < ndim:
        return (dim,)
    dims = canonical_dims(dim, ndim)
    return dims if dims and ndim else None


def int_tuple(values: Any, what: str = "shape") -> Shape:
    """A shape, or another list of ints, as a tuple of Python ints; one int counts as a list of one.

    >>> int_tuple([2, 3]), int_tuple(4)
    ((2, 3), (4,))
    """
    if not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        values = (values,)
    values = tuple(values)
    try:
        if bool not in map(type, values):
            return tuple([operator.index(v) for v in values])
    except TypeError:
        pass
    name = f"{called()}(): argument '{what}'" if called() else what
    raise TypeError(f"{name} must be a tuple of ints, got {values!r}")


def one_int(value: Any, what: str) -> int:
    """A number as Python's int: a tensor of one may be given, and no bool.

    >>> one_int(-1, "dim")
    -1
    """
    try:
        if value is not True and value is not False:
            return operator.index(value)
    except TypeError:
        pass
    name = f"{called()}(): argument '{what}'" if called() else what
    raise TypeError(f"{name} must be int, not {type(value).__name__}: got {value!r}")


def inferred_shape(shape: Shape, numel: int) -> Shape:
    """`shape` with its one -1 replaced by what `numel` elements leave for it.

    >>> inferred_shape((2, -1), 6)
    (2, 3)
    """
    rest = 1
    hole = None
    for i, n in enumerate(shape):
        if n == -1:
            if hole is not None:
                raise RuntimeError("only one dimension can be inferred")
            hole = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
        else:
            rest *= n
    if hole is None:
        if rest == numel:
            return shape
    elif rest:
        if numel % rest == 0:
            return (*shape[:hole], numel // rest, *shape[hole + 1 :])
    elif numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The shape in which tensors of these shapes meet; RuntimeError where they do not.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    out: Shape = ()
    for shape in shapes:
        if clash := mismatch(out, shape):
            said = " and ".join(str(tuple(s)) for s in shapes)
            raise RuntimeError(f"{clash} (got shapes {said})")
        ndim = max(len(out), len(shape))
        out, shape = ((1,) * (ndim - len(s)) + tuple(s) for s in (out, shape))
        out = tuple([m if n == 1 else n for m, n in zip(out, shape)])
    return out


def mismatch(a: Sequence[int], b: Sequence[int]) -> str:
    """What PyTorch says of two shapes that do not meet; nothing of two that do."""
    for back in range(1, min(len(a), len(b)) + 1):
        if a[-back] != b[-back] and 1 not in (a[-back], b[-back]):
            return (
                f"The size of tensor a ({a[-back]}) must match the size of tensor b ({b[-back]}) "
                f"at non-singleton dimension {max(len(a), len(b)) - back}"
            )
    return ""


def view_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides that show elements laid out by `strides` as `new`, or None where none do.

    The algorithm of PyTorch's `computeStride`: dimensions that lie one behind the other in memory
    form a chunk, and each chunk has to be cut on its own.

    >>> view_strides((2, 3), (24, 8), (6,)), view_strides((3, 2), (8, 24), (6,))
    ((8,), None)
    """
    if prod(shape) == 0:
        return contiguous_strides(new)
    result = [0] * len(new)
    at = len(new) - 1
    size = viewed = 1
    base = strides[-1] if strides else 1
    for d in range(len(shape) - 1, -1, -1):
        size *= shape[d]
        if d and (shape[d - 1] == 1 or strides[d - 1] == size * base):
            continue
        while at >= 0 and (viewed < size or new[at] == 1):
            result[at] = viewed * base
            viewed *= new[at]
            at -= 1
        if viewed != size:
            return None
        if d:
            base = strides[d - 1]
            size = viewed = 1
    while at >= 0:  # a 0-d array seen as (1, 1, ...)
        result[at] = base
        at -= 1
    return tuple(result)


def contiguous_strides(shape: Shape) -> Shape:
    """The strides of a row-major tensor, in elements.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def keeps_order(array: Any) -> bool:
    """Whether a copy has the order of its strides: not that of an expanded array."""
    return 0 not in array.strides or array.flags.c_contiguous
