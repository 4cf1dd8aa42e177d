"""Words what went wrong: which ranks a collective waits for in vain, and where those are."""

from __future__ import annotations

from typing import Any

__all__ = ["whereabouts"]

# What a rank tells of a group: its last collectives, as (sequence number, name, whether ended).
History = list[list[Any]]


def whereabouts(call: dict[str, Any], answers: dict[int, dict[str, History]]) -> str:
    """Why a collective did not end: what each rank was doing that was not in it.

    `call` has the group, its ranks, the sequence number, the name, who asks and for how long it
    has waited; `answers` the histories of those ranks that answered, by group.

    >>> call = dict(group="0", ranks=[0, 1], sequence=2, name="all_reduce", rank=0, waited=5.0)
    >>> whereabouts(call, {0: {"0": [[2, "all_reduce", False]]}, 1: {"0": [[1, "barrier", True]]}})
    'all_reduce, sequence 2 of group 0: rank 0 waited 5.0 s in vain; rank 1 has not come to it: \
its last was barrier, sequence 1, which ended'
    """
    sequence, name = call["sequence"], call["name"]
    begin = f"{name}, sequence {sequence} of group {call['group']}: rank {call['rank']} waited " \
            f"{call['waited']:.1f} s in vain; "  # fmt: skip
    others = []
    for rank in call["ranks"]:
        if rank not in answers:
            others.append(f"rank {rank} does not answer: its process stands still")
            continue
        text = _position(answers[rank].get(call["group"], []), sequence, name)
        if text:
            others.append(f"rank {rank} {text}")
    if not others:
        others = ["all ranks are in it: the timeout is too short, or messages do not get through"]
    return begin + "; ".join(others)


def _position(history: History, sequence: int, name: str) -> str:
    """Where a rank is that is not in a collective; "" for one that is."""
    for number, what, _ in history:
        if number == sequence:
            return "" if what == name else f"called {what} instead, sequence {number}"
    if not history:
        return "has not come to it: it has called no collective of the group"
    number, what, ended = history[-1]
    if number > sequence:
        return f"is past it, in {what}, sequence {number}"
    how = "which ended" if ended else "in which it waits"
    return f"has not come to it: its last was {what}, sequence {number}, {how}"
