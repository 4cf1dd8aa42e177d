"""The numbers of recorded ops, which grow with time."""

from __future__ import annotations

from itertools import count

__all__ = ["next_seq", "seq_now"]

_numbers = count(1)
next_seq = _numbers.__next__


def seq_now() -> int:
    """The number that the next op will get; it does not take it.

    >>> seq_now() == next_seq()
    True
    """
    return int(repr(_numbers)[len("count(") : -1])
