"""Puts a copy engine in order, from what is there, after an exception in the middle of its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import CopyEngine

__all__ = ["mend"]


def mend(engine: CopyEngine) -> None:
    """Waits for all copies; finds what is where, and counts it anew.

    What was brought back and not yet asked for is on the host, too: it comes back once more. The
    session of this thread does not go on, and teaches nothing.
    """
    engine.out.stream.synchronize()
    engine.back.stream.synchronize()
    engine.storages.mend()
    live = engine.storages.all()
    sessions = {span.session: 0 for span in live}
    for span in live:
        span.mend()
        sessions[span.session] += span.entered
    for session, alive in sessions.items():
        session.mend(alive)
    engine.ledger.mend(live)
    engine.out.slab.mend()
    engine.out.mend(live)
    interrupted, engine._thread.current = engine._thread.current, None
    if interrupted is not None and interrupted.meter is not None:
        interrupted.meter.drop()
