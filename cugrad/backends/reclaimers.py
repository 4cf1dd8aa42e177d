"""Who can give memory back: when a device is full, or before what is in use is counted."""

from __future__ import annotations

from collections.abc import Callable
from inspect import ismethod
from weakref import WeakMethod

__all__ = ["Reclaimers"]


class Reclaimers:
    """Functions that make room on a device. The object of a method is held weakly.

    >>> class Cache:
    ...     def drop(self):
    ...         print("dropped")
    ...         return True
    >>> cache, reclaimers = Cache(), Reclaimers()
    >>> reclaimers.add(cache.drop)
    >>> reclaimers.ask()
    dropped
    True
    >>> del cache
    >>> reclaimers.ask()
    False
    """

    def __init__(self) -> None:
        self._references: list[Callable[[], Callable[[], bool] | None]] = []

    def add(self, reclaim: Callable[[], bool]) -> None:
        """Has `ask` call a function, which says whether it had something to give up."""
        present = [reference for reference in self._references if reference() is not None]
        self._references = [*present, WeakMethod(reclaim) if ismethod(reclaim) else lambda: reclaim]

    def ask(self) -> bool:
        """Calls all that are still there; whether one of them had something to give up."""
        present = [reclaim for reference in self._references if (reclaim := reference())]
        freed = [reclaim() for reclaim in present]  # all of them, also after a first one that had
        return any(freed)
