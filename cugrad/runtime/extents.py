"""Shapes, and what belongs to a dimension that a user names: its extent, its stride."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from .frames import called

__all__ = ["Size", "of_dim", "size_of"]


class Size(tuple[int, ...]):
    """A shape: a tuple of ints that also counts elements.

    Whatever counts as an index, such as an integer tensor of one element, becomes the int.

    >>> Size((2, 3)).numel()
    6
    """

    __slots__ = ()

    def __new__(cls, extents: Iterable[Any] = (), /) -> Size:
        extents = tuple(extents)
        for extent in extents:
            if type(extent) is not int:
                return tuple.__new__(cls, (_as_int(i, n) for i, n in enumerate(extents)))
        return tuple.__new__(cls, extents)

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        n = 1
        for extent in self:
            n *= extent
        return n

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, item: Any) -> Any:
        got = super().__getitem__(item)
        return size_of(got) if isinstance(item, slice) else got

    def __add__(self, other: Any) -> Any:
        if isinstance(other, tuple):
            return Size((*self, *other))
        if hasattr(other, "__radd__"):
            return NotImplemented
        kind = type(other).__name__
        raise TypeError(f"can only concatenate tuple (not {kind}) to torch.Size")

    def __radd__(self, other: Any) -> Any:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Size:
        return size_of(super().__mul__(times))

    __rmul__ = __mul__


def size_of(ints: Iterable[int]) -> Size:
    """The Size of what are known to be ints, which it does not look at."""
    return tuple.__new__(Size, ints)


def _as_int(place: int, extent: Any) -> int:
    try:
        return index(extent)
    except (TypeError, ValueError, RuntimeError):
        kind = type(extent).__name__
        text = f"torch.Size() takes an iterable of 'int' (item {place} is '{kind}')"
        raise TypeError(text) from None


def of_dim(values: tuple[int, ...], dim: Any) -> int:
    """What belongs to one dimension; PyTorch's errors where there is no such, or it is no int."""
    try:
        return values[dim]
    except IndexError:
        if not values:
            text = f"Dimension specified as {dim} but tensor has no dimensions"
        else:
            text = (
                "Dimension out of range (expected to be in range of "
                f"[-{len(values)}, {len(values) - 1}], but got {dim})"
            )
    except TypeError:
        text = f"{called()}(): argument 'dim' must be int, not {type(dim).__name__}: got {dim!r}"
        raise TypeError(text) from None
    raise IndexError(text)
