"""What of a state dict this rank has: names of entries, and boxes of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...tensor import Tensor
from ..groups import ProcessGroup, group_of
from ..objects import all_gather_object
from ..starting import is_initialized
from ..tensor.dtensor import DTensor
from ..tensor.placements import part_of
from .files import CheckpointException

__all__ = [
    "Leaf", "box_of", "folder_of", "is_stateful", "leaves_of", "on_all_ranks", "ranks_of",
]  # fmt: skip


class Leaf:
    """A tensor or object of a state dict: its name, and where it is."""

    def __init__(self, name: str, holder: Any, key: Any, value: Any) -> None:
        self.name, self.holder, self.key, self.value = name, holder, key, value

    def replace(self, value: Any) -> None:
        """Puts another object in its place; RuntimeError in a tuple."""
        if isinstance(self.holder, tuple):
            raise RuntimeError(f"load: {self.name} is in a tuple, want a list or dict")
        self.holder[self.key] = value


def is_stateful(value: Any) -> bool:
    """Whether a value is written as what its `state_dict` gives, such as a Module."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def leaves_of(state_dict: Any) -> list[Leaf]:
    """What is in nested dicts, and in lists and tuples, in order; empty ones are objects.

    ValueError where two have one name.
    """
    leaves: dict[str, Leaf] = {}
    for leaf in _leaves(state_dict):
        if leaves.setdefault(leaf.name, leaf) is not leaf:
            raise ValueError(f"two entries are called {leaf.name!r}: want keys without a dot")
    return list(leaves.values())


def _leaves(state_dict: Any) -> Iterator[Leaf]:
    waiting = [Leaf("", None, None, state_dict)]
    while waiting:
        leaf = waiting.pop()
        value = leaf.value
        items: list[tuple[Any, Any]] | None = None
        if isinstance(value, dict):
            items = list(value.items())
        elif type(value) in (list, tuple) and any(_is_deep(x) for x in value):
            items = list(enumerate(value))
        if items or leaf.holder is None:
            prefix = f"{leaf.name}." if leaf.name else ""
            below = [Leaf(f"{prefix}{key}", value, key, x) for key, x in items or ()]
            waiting.extend(reversed(below))
        else:
            yield leaf


def _is_deep(value: Any) -> bool:
    return isinstance(value, (Tensor, dict, list, tuple))


def box_of(tensor: Any) -> tuple[list[int], list[int]]:
    """Where this rank's part of a tensor begins, and how large it is."""
    sizes = list(tensor.shape)
    offsets = [0] * len(sizes)
    if isinstance(tensor, DTensor) and tensor._along is not None:
        group, dim = tensor._along
        rows = part_of(sizes[dim], group.rank(), group.size())
        offsets[dim], sizes[dim] = rows.start, rows.stop - rows.start
    return offsets, sizes


def ranks_of(process_group: Any, no_dist: bool) -> ProcessGroup | None:
    """The group whose ranks take part; None for this process alone."""
    if no_dist or not is_initialized():
        return None
    return group_of(process_group)


def folder_of(name: str, checkpoint_id: Any, storage: Any) -> Path:
    """The folder that an argument names; ValueError if none does."""
    if checkpoint_id is None and storage is not None:
        checkpoint_id = storage.path
    if checkpoint_id is None:
        raise ValueError(f"{name}: want checkpoint_id=, a folder that all ranks see")
    return Path(checkpoint_id)


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
