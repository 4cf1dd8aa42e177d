"""A training step as a planner sees it: events in time, and values that live through them."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "COMPRESS", "DISK", "KEEP", "OFFLOAD", "RECOMPUTE", "StepEvent", "Step", "StepValue", "moved",
]  # fmt: skip

KEEP, OFFLOAD, RECOMPUTE = "keep", "offload", "recompute"
COMPRESS, DISK = "compress", "disk"


@dataclass(frozen=True, slots=True)
class StepEvent:
    """An op of forward, or a node of backward.

    `base` is the most bytes in use during it that belong to no value: parameters, gradients on
    their way, what the op itself needs. `own` is what it takes beyond what is there as it begins,
    or as what it reads is back; `room` what of that is not what it makes; None: it was not
    measured. `comes` are weights that are elsewhere, and come for it whenever it runs.
    """

    seconds: float
    base: int
    name: str = ""
    own: int = 0
    room: int | None = None
    comes: int = 0


@dataclass(frozen=True, slots=True)
class StepValue:
    """A storage as it was at one version.

    `born` is the event whose op makes it, and all others born in it: that op runs once for all of
    them; -1: it is there before the step. `dies` is the last event of forward that reads it, `uses`
    are those of backward; a value without is wanted only by others that are recomputed. `inputs`
    are the values that its op reads. `placements` are those that may be chosen; `stored` says how
    many bytes it takes as "compress", and `codec_seconds` how long that takes, each way. Until the
    event `held` a graph that is retained holds what is kept of it, though it is read no more.
    """

    nbytes: int
    born: int
    dies: int
    uses: tuple[int, ...]
    inputs: tuple[int, ...]
    placements: frozenset[str]
    stored: dict[str, int] | None = None
    codec_seconds: float = 0.0
    held: int = -1


@dataclass(frozen=True, slots=True)
class Step:
    """Forward, which is `events[:forward]`, and backward; rates are bytes per second.

    `backlog` bytes may be on their way out before compute waits for the oldest; `lookahead` bytes
    are brought back before they are needed.
    """

    events: tuple[StepEvent, ...]
    forward: int
    values: tuple[StepValue, ...]
    out_rate: float
    in_rate: float
    disk_out_rate: float
    disk_in_rate: float
    lookahead: int
    backlog: int


def moved(step: Step, shift: int) -> Step:
    """The same step with this many more bytes in use all the time."""
    events = tuple([replace(e, base=max(0, e.base + shift)) for e in step.events])
    return replace(step, events=events)
