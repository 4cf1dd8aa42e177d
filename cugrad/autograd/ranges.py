"""Ranges: stretches of the program that observers of this thread see begin and end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ..runtime.kept import NOTHING
from .mode import RangeObserver, state

__all__ = ["ranged"]


class _Range:
    """Ends for the observers that saw it begin, even if others observe by then."""

    __slots__ = ("_what", "_begun")

    def __init__(self, *what: Any) -> None:
        self._what = what
        self._begun: tuple[RangeObserver, ...] = ()

    def __enter__(self) -> None:
        try:
            for observer in state.ranges:
                observer.range_begin(*self._what)
                self._begun = (*self._begun, observer)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        begun, self._begun = self._begun, ()
        for observer in reversed(begun):
            observer.range_end(self._what[0])


def ranged(
    name: str, scope: str, nbytes: int = 0, stream: Any = None, owner: Any = None
) -> AbstractContextManager[None]:
    """Makes the code in it a range, which a profile shows as an event, NVTX and ITT as a range. The
    arguments are those of `RangeObserver.range_begin`. Without an observer it costs one check.

    >>> with ranged("epoch 1", "user"):
    ...     pass
    """
    return _Range(name, scope, nbytes, stream, owner) if state.ranges else NOTHING
