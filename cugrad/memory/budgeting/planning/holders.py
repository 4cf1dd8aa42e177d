"""Says in words what holds the memory of a step's peak."""

from __future__ import annotations

from collections.abc import Sequence

from ...sizes import size
from .forecast import Forecast
from .step import KEEP, RECOMPUTE, Step

__all__ = ["holders"]


def holders(step: Step, placements: Sequence[str], forecast: Forecast) -> str:
    """What is in memory at the peak: what belongs to no saved tensor, and the largest of those."""
    at = forecast.at
    event = step.events[at]
    where = "forward" if at < step.forward else "backward"
    least = min([e.base for e in step.events])
    needs = event.base - least
    text = (
        f"At its peak, in {event.name or 'an op'} of {where}, {size(least)} of "
        f"{size(forecast.peak)} are parameters and what else is there all the time"
    )
    if needs:
        text += (
            f", {size(needs)} gradients on their way, what the op itself needs and what other "
            "contexts move or keep"
        )
    saved = forecast.peak - event.base
    if not saved:
        return text + "."
    text += f", {size(saved)} saved tensors that wait, that it reads or that are under way"
    here = [
        (v.nbytes, step.events[v.born].name if v.born >= 0 else "")
        for v, place in zip(step.values, placements)
        if v.born <= at <= v.dies
        or at in v.uses
        or place == KEEP
        and v.uses
        and v.dies < at <= v.uses[-1]
        or place == RECOMPUTE
        and v.uses
        and v.uses[0] <= at <= v.uses[-1]
    ]
    largest = sorted(here, key=lambda pair: -pair[0])[:3]
    names = [f"{size(n)} of {name or 'an input'}" for n, name in largest if n]
    return text + (f"; the largest: {', '.join(names)}." if names else ".")
