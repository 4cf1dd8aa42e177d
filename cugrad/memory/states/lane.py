"""Memory for what comes, which is free again without compute having waited for that."""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Lane", "lane_of"]

# What a device has freed serves the stream next that has allocated it. Were that the compute
# stream, it would have to wait until others have left before what comes can have their memory, and
# what comes would have to wait for all that compute has been given meanwhile. So a lane allocates
# for itself: its stream waits for those who leave, and compute for what has come, no more.


class Lane:
    """A stream of copies to a device, which has an arena of memory of its own.

    Memory goes back there behind events that the stream waits for. Of memory that others may let
    go of, without that, `escaped` has weak references to the owners: as long as there are any, what
    comes waits for all that compute has been given.
    """

    def __init__(self, backend: Any, name: str) -> None:
        self.backend, self.stream = backend, backend.stream()
        if hasattr(self.stream, "name"):  # of a simulated device
            self.stream.name = f"{name} to device"
        self.escaped: deque[weakref.ref[Any]] = deque()

    def allocates(self, compute: Any) -> AbstractContextManager[Any]:
        """Within it memory is the lane's."""
        count = len(self.escaped)
        if count:
            several = [self.escaped.popleft() for _ in range(count)]
            self.escaped += [ref for ref in several if ref() is not None]
            self.stream.wait_event(compute.record_event())
        return self.backend.use_stream(self.stream)

    def frees(self, compute: Any) -> None:
        """Memory that compute has been given goes back."""
        self.stream.wait_event(compute.record_event())


def lane_of(engine: Any, name: str) -> Lane:
    """The lane of an engine for tensors of one kind."""
    lane = engine.lanes.get(name)
    if lane is None:
        with engine.backend.use_device(engine.index):  # whose stream the lane gets
            lane = engine.lanes[name] = Lane(engine.backend, name)
    return lane
