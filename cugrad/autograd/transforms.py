"""The transforms of functions that run in a thread, in their order: gradients, tangents, vmaps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from ..backends.batched import random as batched_random
from ..backends.batched.arrays import BatchLevel
from ..runtime.kept import Switch, of_thread

__all__ = ["GRAD", "active", "lowered", "noting", "opened_again", "opened_level", "running"]

GRAD = object()


class Running(threading.local):
    """The transforms of functions that run in this thread, the outermost first.

    A vmap is its BatchLevel, a jvp its level of forward mode, anything that takes gradients GRAD.
    """

    transforms: tuple[Any, ...] = ()
    noted: tuple[list[BatchLevel], ...] = ()  # lists of the levels that are opened
    again: Iterator[BatchLevel] | None = None  # levels to open, of a function that runs again

    @property
    def levels(self) -> list[BatchLevel]:
        """The vmaps among them."""
        return [t for t in self.transforms if type(t) is BatchLevel]


running = of_thread(Running())
batched_random.open_levels = lambda: running.levels


def opened_level(size: int, randomness: str) -> BatchLevel:
    """A level for a vmap that begins. In the second run of a checkpoint it is the level of the
    first run, because backward holds arrays of that level.
    """
    level = None if running.again is None else next(running.again, None)
    if level is None or (level.size, level.randomness) != (size, randomness):
        level = BatchLevel(size, randomness)
    for levels in running.noted:
        levels.append(level)
    return level


class _Switched(Switch):
    """Changes fields of `running` inside."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def as_is(self) -> dict[str, Any]:
        return {name: getattr(running, name) for name in self._changes}

    def change(self, before: dict[str, Any]) -> None:
        vars(running).update(self._changes)

    def put_back(self, before: dict[str, Any]) -> None:
        vars(running).update(before)


def noting(levels: list[BatchLevel]) -> Switch:
    """Adds the levels that are opened inside to the list."""
    return _Switched(noted=(*running.noted, levels))


def opened_again(levels: list[BatchLevel], transforms: tuple[Any, ...]) -> Switch:
    """Makes vmaps inside open the levels of a list, in order, with these transforms running."""
    return _Switched(noted=(), again=iter(levels), transforms=transforms)


def active(transform: Any) -> Switch:
    """Makes this transform one of those that run inside."""
    return _Switched(transforms=(*running.transforms, transform))


def lowered(transforms: tuple[Any, ...]) -> Switch:
    """Makes these transforms the only ones that run inside."""
    return _Switched(transforms=transforms)
