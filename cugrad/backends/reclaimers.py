"""Who can give memory back: when a device is full, or before what is in use is counted. And who
knows what the error says, if there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import ismethod
from typing import Any
from weakref import WeakMethod

__all__ = ["Reclaimers", "ask_when_full", "told"]

_asked: list[Callable[[Any, type], None]] = []


def ask_when_full(tell: Callable[[Any, type], None]) -> None:
    """Has `tell(error, kind)` write into an error what it knows of who holds arrays of a kind."""
    _asked.append(tell)


def told(error: MemoryError, kind: type) -> MemoryError:
    """An error before it is raised, where nothing else will be tried; `kind` is that of arrays on
    the device.
    """
    for tell in _asked:
        tell(error, kind)
    return error


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
