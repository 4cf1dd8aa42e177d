"""Checks that what a file says is what it is said to be, and no more of it than the file holds."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from ..device import device
from ..dtypes import dtype
from ..tensor import Tensor

__all__ = ["Allowance", "StorageName", "StorageType", "extents", "shown", "storage_name"]

MOST_DIMS = 64  # of NumPy's arrays
LARGEST = (1 << 62) - 1  # a size, an offset, or a number of bytes
_MOST_PARTS = 1000  # of a key
_MOST_ALIKE = 256  # keys of one container with the same hash
_WIDE = 1 << 60  # integers below are their own hash; larger ones may share one
_SIZED = (str, bytes, bytearray, list, tuple, dict)


class StorageType(NamedTuple):
    """What a file calls the type of a storage; `dtype` is None for one of bytes."""

    name: str
    dtype: dtype | None


class StorageName(NamedTuple):
    """What a file says of a storage where a tensor names it."""

    kind: StorageType
    key: str
    place: str
    elements: int


def shown(value: Any) -> str:
    """A value of a file for the text of an error: short, whatever it is.

    >>> shown((1, -2)), shown("a" * 99) == "'" + "a" * 39 + "...", shown(1 << 20000)
    ('(1, -2)', True, 'an int of 20001 bits')
    """
    if type(value) is int and value.bit_length() > 256:
        return f"an int of {value.bit_length()} bits"
    if type(value) in (list, tuple):
        few = ", ".join(shown(each) for each in value[:8] if type(each) not in (list, tuple))
        return f"({few}{', ...' if len(value) > 8 else ''})"
    if type(value) not in (str, bytes, int, float, bool, type(None)):
        return type(value).__name__
    text = repr(value[:100] if type(value) in (str, bytes) else value)
    return text if len(text) <= 80 else f"{text[:40]}..."


def storage_name(name: tuple[Any, ...], entries: int) -> StorageName:
    """The name of a storage, which has this many entries; UnpicklingError where it is none."""
    if len(name) != entries or not isinstance(name[1], StorageType):
        raise pickle.UnpicklingError(f"a storage with {len(name)} fields, or of no type")
    kind, key, place, count = name[1:5]
    if type(key) is not str or type(place) is not str or type(count) is not int:
        raise pickle.UnpicklingError("a storage without key, place or size")
    if not 0 <= count <= LARGEST:
        raise pickle.UnpicklingError(f"a storage of {shown(count)} elements")
    return StorageName(kind, key, place, count)


def extents(offset: Any, size: Any, stride: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """The offset, size and stride of a tensor, each in the range of a machine's numbers."""
    for each in (size, stride):
        if not isinstance(each, (tuple, list)) or len(each) > MOST_DIMS:
            raise ValueError(f"a tensor has the size or stride {shown(each)}")
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or any(type(n) is not int or not 0 <= n <= LARGEST
                                       for n in numbers):  # fmt: skip
        raise ValueError(
            f"a tensor has the offset, size and stride {shown(offset)}, {shown(size)}, "
            f"{shown(stride)}"
        )
    return offset, tuple(size), tuple(stride)


class Allowance:
    """What a pickle may make others do: copy, hash and compare about as much as it holds.

    A pickle names a value again in two bytes, however large it is; without an end to that a small
    file takes any memory, or any time.
    """

    def __init__(self, nbytes: int) -> None:
        self.left = 4 * nbytes + 1024
        self._alike: dict[tuple[int, int], int] = {}  # keys by container and hash

    def spend(self, much: int) -> None:
        """Takes from what is left; UnpicklingError where it is not enough."""
        self.left -= much
        if self.left < 0:
            raise pickle.UnpicklingError("the pickle copies more than it holds")

    def copy(self, args: tuple[Any, ...]) -> None:
        """Spends what a call with these arguments copies: entries, also of those in a tuple."""
        for arg in args:
            if type(arg) in _SIZED:
                self.spend(len(arg))
            if type(arg) is tuple:
                self.spend(sum(len(each) for each in arg if type(each) in _SIZED))

    def key(self, key: Any, container: Any, allowed: dict[int, Any]) -> None:
        """TypeError for a key whose hash would run user code; ValueError where it would take long:
        for tuples within tuples, and for keys that are made to share a hash."""
        left, parts = [key], 0
        while left:
            part = left.pop()
            parts += 1
            if parts > _MOST_PARTS:
                raise ValueError("a key of more than a thousand parts")
            if isinstance(part, tuple):
                left.extend(part[: _MOST_PARTS + 1])
            elif type(part) in (str, bytes):
                self.spend(len(part) >> 6)
            elif type(part) in (int, bool):
                self.spend(part.bit_length() >> 6)
            elif not (
                part is None or isinstance(part, Tensor) or type(part) in (float, complex)
                or type(part) in (dtype, device) or id(type(part)) in allowed
            ):  # fmt: skip
                raise TypeError(f"a key of type {type(part).__name__}")
        self.spend(parts - 1)
        if isinstance(key, (tuple, float, complex)) or (type(key) is int and abs(key) > _WIDE):
            mark = id(container), hash(key)
            self._alike[mark] = self._alike.get(mark, 0) + 1
            if self._alike[mark] > _MOST_ALIKE:
                raise ValueError(f"more than {_MOST_ALIKE} keys that share a hash")
