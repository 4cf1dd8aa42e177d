"""The least time of a step, whose copies and whose host's optimizer go on beside computing."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["end_of", "least_seconds"]


def least_seconds(
    computing: float, link_in: float, link_out: float, host: Iterable[tuple[float, float]] = ()
) -> float:
    """The least seconds of a step: of what takes longest of all that goes on at once.

    That are the device, with forward, backward and what it does of the optimizer's step; the copies
    in each direction of the link; and the host, which has seconds of work for each gradient from
    when that is whole on: `host` has pairs of the two. No schedule of the same copies takes less,
    however small the parts, and whether the step is taken behind backward or during it.

    >>> least_seconds(3.0, 1.0, 2.0, [(1.0, 1.5), (3.0, 0.5)])
    3.5
    """
    return max(computing, link_in, link_out, end_of(host))


def end_of(work: Iterable[tuple[float, float]]) -> float:
    """When work has been done, one thing after the other: pairs of when it may begin, and seconds.

    >>> end_of([(1.0, 1.5), (3.0, 0.5)])
    3.5
    """
    most = rest = 0.0
    for when, seconds in sorted(work, reverse=True):
        rest += seconds
        most = max(most, when + rest)
    return most
