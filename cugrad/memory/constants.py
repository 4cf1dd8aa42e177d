"""What is needed of a storage as it is, which is copied before the storage is changed in place."""

from __future__ import annotations

import weakref
from typing import Any

from ..autograd.mode import watch_writes
from ..autograd.recording.mirrors import written_with
from ..backends.several import copy_of
from ..tensor import Tensor
from .geometry import root_of

__all__ = ["Constant", "guard"]


class Constant:
    """A tensor as it is: an input that has no recipe, or what stays where it was saved.

    The constant refers to the tensor, and copies it just before an op changes it in place. It does
    not copy what the recipe's own op `overwrites`. Of a tensor whose bytes may be elsewhere it does
    not hold the array, or that would have to stay.
    """

    __slots__ = ("held", "tensor", "root", "counter", "version", "__weakref__")

    def __init__(self, tensor: Tensor, root: Any, overwrites: bool = False) -> None:
        self.held = None if tensor._may_be_away else tensor._array
        self.tensor, self.root = tensor if self.held is None else None, weakref.ref(root)
        self.counter = tensor.counter
        self.version = self.counter[0]
        if not overwrites:
            guard(root, self)

    @property
    def array(self) -> Any:
        """The elements, which come if they are elsewhere."""
        return self.held if self.tensor is None else self.tensor._array

    def save(self, root: Any) -> None:
        """A storage is about to change."""
        if self.root() is root and self.counter[0] == self.version:
            self.held, self.tensor = copy_of(self.array, "K"), None
            self.root, self.counter = weakref.ref(root_of(self.held)), [self.version]


class _Asked(weakref.ref[Any]):
    """A reference to what needs a storage, and by what the storage is known."""

    __slots__ = ("key",)
    key: int


# By the id of a root: what needs it as it is.
_guarded: dict[int, list[_Asked]] = {}


def guard(root: Any, holder: Any) -> None:
    """Asks a holder to save what it needs of a storage before the storage is changed in place."""
    asked = _Asked(holder, _ended)
    asked.key = id(root)
    asks: list[_Asked] = []
    while asked not in asks or _guarded.get(asked.key) is not asks:  # a collector may run meanwhile
        asks = _guarded.setdefault(asked.key, [])
        asks.append(asked)
    watch_writes(_before_write, True)


def _ended(asked: _Asked) -> None:
    """Who needed a storage is gone."""
    asks = _guarded.get(asked.key)
    if asks is not None:
        asks[:] = [other for other in asks if other is not asked and other() is not None]
        if not asks:
            _guarded.pop(asked.key, None)
    _watch_no_more()


def _watch_no_more() -> None:
    """Writes are shown while something is needed; another thread may begin to need it meanwhile."""
    if not _guarded:
        watch_writes(_before_write, False)
    if _guarded:
        watch_writes(_before_write, True)


def _before_write(tensor: Tensor) -> None:
    for array in written_with(tensor):
        root = root_of(array)
        for asked in _guarded.pop(id(root), ()):
            holder = asked()
            if holder is not None:
                holder.save(root)
    _watch_no_more()
