"""What ranks do together for a checkpoint: each its part, and all hear of what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ...distributed.groups import ProcessGroup, group_of
from ...distributed.objects import all_gather_object
from ...distributed.starting import is_initialized

__all__ = ["CheckpointException", "Stateful", "is_stateful", "on_all_ranks", "ranks_of"]


class CheckpointException(Exception):
    """What went wrong on which ranks: `failures` has an error for each, and all ranks raise it."""

    def __init__(self, msg: str, failures: dict[int, str]) -> None:
        super().__init__(msg + "; ".join(f"rank {r}: {text}" for r, text in failures.items()))
        self._failures = failures

    @property
    def failures(self) -> dict[int, str]:
        """The text of what went wrong, by rank."""
        return self._failures


@runtime_checkable
class Stateful(Protocol):
    """What is written as what its `state_dict` gives, such as a Module; PyTorch's name for it."""

    def state_dict(self) -> dict[str, Any]:
        """What is written."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what was read."""
        ...


def is_stateful(value: Any) -> bool:
    """Whether a value is asked for its state."""
    return isinstance(value, Stateful)


def ranks_of(process_group: Any, no_dist: bool) -> ProcessGroup | None:
    """The group whose ranks take part; None for this process alone."""
    if no_dist or not is_initialized():
        return None
    return group_of(process_group)


def on_all_ranks(group: ProcessGroup | None, name: str, act: Callable[[], Any]) -> list[Any]:
    """What `act` returns on each rank; CheckpointException on all of them if it fails on one."""
    error, result = None, None
    try:
        result = act()
    except Exception as failure:
        error = failure
        if group is None:
            raise
    if group is None:
        return [result]
    text = None if error is None else f"{type(error).__name__}: {error}"
    answers: list[Any] = [None] * group.size()
    all_gather_object(answers, (text, result), group)
    failures = {group.ranks[i]: t for i, (t, _) in enumerate(answers) if t is not None}
    if failures:
        raise CheckpointException(f"{name}: ", failures) from error
    return [answer for _, answer in answers]
