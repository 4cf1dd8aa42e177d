"""Locks that a forked child finds open: no other thread of its parent can open them for it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["kept_over_forks", "unforked"]


class ForkLocks:
    """The locks that fork takes before it copies the process, and gives back on both sides."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._held: list[Any] = []

    def add(self, lock: Any) -> None:
        """A lock that is held for short whiles only, never while another of these is asked for."""
        self._locks[id(lock)] = lock

    def take(self) -> None:
        refs = self._locks.valuerefs()
        while refs:  # again, since who holds one of them may add another
            for lock in filter(None, [ref() for ref in refs]):
                lock.acquire()
                self._held.append(lock)
            held = set(map(id, self._held))
            refs = [ref for ref in self._locks.valuerefs() if id(ref()) not in held]
            refs = [ref for ref in refs if ref() is not None]

    def give_back(self) -> None:
        for lock in self._held:
            lock.release()
        self._held = []


kept_over_forks = ForkLocks()
unforked = threading.RLock()  # around imports: a child forked in the middle of one waits for ever
kept_over_forks.add(unforked)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=kept_over_forks.take, after_in_parent=kept_over_forks.give_back,
        after_in_child=kept_over_forks.give_back,
    )  # fmt: skip
