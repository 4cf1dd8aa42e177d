"""What a device had in use while a budget was entered, in its steps and between them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...backends.protocol import Backend
from ...runtime.frames import warn_user
from ...runtime.kept import of_thread
from ..sizes import size

__all__ = ["Within", "entered"]


class _Entered(threading.local):
    """The budget that a thread is in."""

    budget: Any = None


entered = of_thread(_Entered())


class Within:
    """The most that was in use from where a budget was entered to where it was left.

    That may be several passes, and what no plan is made for: an evaluation, an optimizer's step.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.most = 0  # bytes; 0 on a host, where nothing is counted all the time
        self._of_turn = 0  # bytes since the last turn of a loop
        self._before = self._here = 0  # the most before it was entered, and what was in use then

    def begin(self) -> None:
        """The budget is entered."""
        self.most = self._of_turn = 0
        self._before = self.backend.watched_peak()
        self.backend.watch_peak()
        self._here = self.backend.memory_allocated()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is in use here, as rates are measured for a report, is not of its making either."""
        before = self.backend.watched_peak()
        self.backend.watch_peak()
        try:
            yield
        finally:
            self._before = max(self._before, self.backend.watched_peak())
            self.backend.watch_peak()
            self.backend.raise_watched_peak(before)

    def look(self) -> int:
        """The most in use since the last look, where no step is watched."""
        most = int(self.backend.watched_peak())
        self._of_turn = max(self._of_turn, most)
        self.backend.watch_peak()
        return most

    def turns(self) -> int:
        """A loop within it has come to its next turn. Returns the most in use since the last; 0 on
        a host, whose one peak is the program's, too.
        """
        if self.backend.device_type == "cpu":
            return 0
        self.look()
        most, self._of_turn = self._of_turn, 0
        self.most = max(self.most, most)
        return most

    def end(self) -> None:
        """It is left. What was there as it was entered, and grew no more, is not of its making."""
        self._of_turn = max(self._of_turn, self.backend.watched_peak())
        most = max(self.most, self._of_turn)
        self.backend.raise_watched_peak(max(self._before, most))
        self.most = most if most > self._here else 0

    def check(self, limit: int, told: int) -> None:
        """Says so if more than the limit was in use since the last turn of a loop, and more than
        was told of that.
        """
        if self.most > limit and self._of_turn > max(limit, told):
            warn_user(
                f"budget: {size(self._of_turn)} were in use within it, over its limit of "
                f"{size(limit)}, but not in a forward and its backward: what an evaluation takes, "
                "or an optimizer's step, is not planned"
            )
