"""What an offloading context asks of the engine, and what it counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .stats import Meter, OffloadStats

__all__ = ["OffloadCounts", "OffloadOptions"]


@dataclass
class OffloadCounts:
    """What passed through a context: sessions, bytes, the times of some sessions."""

    sessions: int = 0
    stats: OffloadStats = field(default_factory=OffloadStats)
    meters: deque[Meter] = field(default_factory=lambda: deque(maxlen=2))
    errors: list[Any] = field(default_factory=list)  # of the codec, device scalars: the first 64

    @property
    def meter(self) -> Meter | None:
        """The last meter."""
        return self.meters[-1] if self.meters else None


@dataclass
class OffloadOptions:
    """What the context that a tensor was saved in asks for, and where that is counted.

    `lookahead` and `backlog` are bytes, None: two of the largest storages. `codec` encodes what is
    stored; `keep_last` bytes of a step's end stay on the device, None: those that would not have
    left in time. `host_limit` bounds the page-locked bytes; `spill`, a store, writes what finds no
    place there, None: it goes to ordinary host memory. `exact`: what has not left when it is wanted
    back counts as ahead, too, as in the forecast of a plan. `room` says how many bytes may
    come back ahead of need now, beside what `lookahead` allows; None: that is all.
    """

    min_bytes: int = 0
    keep_last: int | None = 0
    lookahead: int | None = None
    backlog: int | None = None
    host_limit: int | None = None
    pinned: bool = True
    spill: Any = None
    codec: Any = None
    timed: bool = False
    exact: bool = False
    room: Callable[[], int] | None = None
    counts: OffloadCounts = field(default_factory=OffloadCounts)

    @property
    def key(self) -> tuple[Any, ...]:
        """What a plan depends on beside the storages."""
        return self.keep_last, self.backlog, None if self.codec is None else self.codec.name
