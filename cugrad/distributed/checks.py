"""What collectives check of their arguments, and of those of other ranks."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

from ..tensor import Tensor
from .errors import DistBackendError, DistStoreError
from .groups import GroupCall, ProcessGroup, default_group, group_of, known_group, world

__all__ = [
    "DebugLevel", "check_list", "check_lists", "check_same_dtype", "check_tensor", "compare",
    "get_debug_level", "get_global_rank", "get_group_rank", "get_process_group_ranks",
    "member_group", "rank_in", "set_debug_level", "set_debug_level_from_env",
]  # fmt: skip


class DebugLevel(Enum):
    """What TORCH_DISTRIBUTED_DEBUG asks for: with DETAIL, ranks compare each call beforehand."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """The level that was set last, or that TORCH_DISTRIBUTED_DEBUG names; OFF by default."""
    if _chosen:
        return _chosen[-1]
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise ValueError(
            f"TORCH_DISTRIBUTED_DEBUG: got {name}, want {', '.join(DebugLevel.__members__)}"
        )
    return DebugLevel[name]


_chosen: list[DebugLevel] = []  # by `set_debug_level`, if it was called


def set_debug_level(level: DebugLevel) -> None:
    """Sets the level, whatever TORCH_DISTRIBUTED_DEBUG says; TypeError for what is none."""
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: got {level!r}, want a DebugLevel such as DETAIL")
    _chosen[:] = [level]


def set_debug_level_from_env() -> None:
    """Has the level be what TORCH_DISTRIBUTED_DEBUG says again."""
    _chosen.clear()


def check_tensor(value: Any, name: str) -> None:
    """TypeError unless an argument is a Tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )


def check_list(values: Any, name: str) -> None:
    """TypeError unless an argument is a list of Tensors."""
    start = f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n" \
            f"             but got {type(values)}"  # fmt: skip
    if not isinstance(values, list):
        raise TypeError(f"{start} instead.")
    if not all(isinstance(x, Tensor) for x in values):
        raise TypeError(f"{start} with elements of type {[type(x) for x in values]}.")


def check_lists(name: str, group: ProcessGroup, *lists: list[Tensor]) -> None:
    """ValueError unless there is a tensor for each rank."""
    for tensors in lists:
        if len(tensors) != group.size():
            raise ValueError(
                f"{name}: got a list of {len(tensors)} tensors, want one for each of the "
                f"{group.size()} ranks of the group"
            )


def check_same_dtype(*tensors: Tensor) -> None:
    """ValueError unless all tensors have the dtype of the first."""
    for t in tensors:
        if t.dtype != tensors[0].dtype:
            raise ValueError(
                "Invalid usage of tensors with different dtypes"
                f"Found {tensors[0].dtype} and  {t.dtype}"
            )


def member_group(group: Any, name: str) -> ProcessGroup | None:
    """The group to call a collective of; None, with a warning, where this rank is not in it."""
    chosen = group_of(group)
    if chosen is None:
        warnings.warn(
            f"Running {name} on global rank {world.rank} which does not belong to the given group.",
            stacklevel=3,
        )
    return chosen


# ---------------------------------------------------------------------- ranks


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in a group of a rank of the job; ValueError if it is not in it."""
    if global_rank not in known_group(group).ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the job of a rank of a group; ValueError if there is none."""
    if not 0 <= group_rank < len(known_group(group).ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks in the job of those of a group."""
    return list((group or default_group()).ranks)


def rank_in(
    group: ProcessGroup, global_rank: int | None, group_rank: int | None, default: int | None = None
) -> int:
    """The rank in a group of what an argument names: `src=` in the job, or `group_src=`."""
    if group_rank is not None:
        if global_rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        get_global_rank(group, group_rank)
        return group_rank
    if global_rank is None:
        global_rank = default
    if global_rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    return get_group_rank(group, global_rank)


# ---------------------------------------------------------------------- other ranks


def compare(
    call: GroupCall, tensors: Iterable[Tensor], shapes: bool, *how: Any,
    parts: tuple[list[int], list[int]] | None = None,
) -> None:  # fmt: skip
    """DistBackendError, on every rank and before data moves, unless all make the same call.

    `shapes` says that the tensors have the same shape on all ranks, `how` what else they agree in;
    `parts` are the elements that this rank sends to each, and wants of each.
    """
    group = call.group
    if group.member is None or get_debug_level() is not DebugLevel.DETAIL:
        return
    operands = [f"{t.dtype} {list(t.shape) if shapes else ''}".strip() for t in tensors]
    own = " ".join([f"{call.name}({', '.join(operands)})", *map(str, how)])
    key = f"job {world.places}: call {call.sequence} of group {group.group_name}"
    began = time.monotonic()
    try:
        said = group.member.gather(key, group.rank(), group.size(), [own, parts], group.timeout)
    except DistStoreError:
        call.check(began, 0.0)  # says why, to all
        raise
    if difference := _difference(group, said):
        call.entry[2] = True  # it is over, for all of them
        raise DistBackendError(
            f"Detected mismatch between collectives on ranks: at sequence {call.sequence} of group "
            f"{group.group_name}, {difference}"
        )


def _difference(group: ProcessGroup, said: list[Any]) -> str:
    """In what the calls of two ranks differ; "" if all ranks make the same call."""
    ranks, texts = group.ranks, [text for text, _ in said]
    for other, text in enumerate(texts):
        if text != texts[0]:
            return f"rank {ranks[0]} calls {texts[0]}, but rank {ranks[other]} calls {text}"
    if said[0][1] is not None:
        for i, (_, (sent, _)) in enumerate(said):
            for j, (_, (_, places)) in enumerate(said):
                if sent[j] != places[i]:
                    return (
                        f"in {texts[0]} rank {ranks[i]} sends {sent[j]} elements to rank "
                        f"{ranks[j]}, which wants {places[i]}"
                    )
    return ""
