"""What all spans of a device hold together, and how it is counted anew behind an exception."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ...backends.lending.slab import PinnedSlab

if TYPE_CHECKING:
    from .engine import CopyEngine
    from .span import Span

__all__ = ["Ledger", "mend"]


class Ledger:
    """What an engine's spans hold of a device and of the host, all together.

    `away` counts bytes that are not on the device, of spans that are still wanted; `ahead`, of
    them, those brought back and not yet asked for. `coming` has the bytes that come back, by the
    event of their arrival, until who reads them waits for that: the graph alone does not hold them,
    of which the garbage collector may finalize any part first. `dropped` has what spans held that
    are gone; `orphans` says whether one of them was leaving.
    """

    __slots__ = ("away", "ahead", "coming", "dropped", "orphans", "slab")

    def __init__(self, slab: PinnedSlab) -> None:
        self.away = self.ahead = 0
        self.coming: dict[Any, Any] = {}
        self.dropped: deque[tuple[int, int, Any, Any]] = deque()
        self.orphans = False
        self.slab = slab

    def mend(self, spans: list[Span]) -> None:
        """Counts anew what these hold, of which nothing is on its way."""
        self.dropped.clear()
        self.coming.clear()
        self.ahead, self.away = 0, sum([span.away for span in spans if span.entered])

    def bury(self) -> None:
        """Takes what the spans that are gone held off the sums."""
        while self.dropped:
            ahead, away, arrived, stream = self.dropped.popleft()
            self.ahead -= ahead
            self.away -= away
            if arrived is not None:
                stream.wait_event(arrived)
                self.coming.pop(arrived, None)


def mend(engine: CopyEngine) -> None:
    """Waits for all copies; finds what is where, and counts it anew.

    What was brought back and not yet asked for is on the host, too: it comes back once more. The
    session of this thread does not go on, and teaches nothing.
    """
    for stream in engine.streams():
        stream.synchronize()
    engine.storages.mend()
    live = engine.storages.all()
    sessions = {span.session: 0 for span in live}
    for span in live:
        span.mend()
        sessions[span.session] += span.entered
    for session, alive in sessions.items():
        session.mend(alive)
    for ledger in (engine.ledger, engine.states):
        ledger.mend([span for span in live if span.ledger is ledger])
    engine.out.slab.mend()
    engine.out.mend(live)
    interrupted, engine._thread.current = engine._thread.current, None
    if interrupted is not None and interrupted.meter is not None:
        interrupted.meter.drop()
