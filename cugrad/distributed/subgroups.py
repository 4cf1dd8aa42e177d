"""`new_group` and its like: groups of some ranks of a job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .. import backends
from .checks import get_process_group_ranks
from .groups import GroupMember, default_group, world
from .starting import engines_of, make_group, seconds_of

__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration"]


def new_group(
    ranks: Any = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks. All ranks of the job call this, in the same order.

    Returns `GroupMember.NON_GROUP_MEMBER` on ranks that are not in it. ValueError for ranks that
    are not there, or are named twice.
    """
    whole = default_group()
    if pg_options is not None or use_local_synchronization:
        raise NotImplementedError(
            "new_group: got pg_options= or use_local_synchronization=True, want all ranks to call "
            "it, without options"
        )
    chosen = list(whole.ranks) if ranks is None else [int(r) for r in ranks]
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"new_group: got ranks={chosen}, want each of them once")
    for r in chosen:
        if not 0 <= r < whole.size():
            raise ValueError(
                f"Rank {r} is out of range. Valid ranks are 0 to {whole.size() - 1} "
                f"(world_size={whole.size()})"
            )
    if len(chosen) > whole.size() or not chosen:
        raise ValueError("the new group's world size should be from 1 to that of the job")
    if sort_ranks:
        chosen.sort()
    seconds = whole.timeout if timeout is None else seconds_of(timeout)
    asked = {d: e.name for d, e in whole.engines.items()} if backend is None else engines_of(
        backend
    )  # fmt: skip
    if world.rank not in chosen:
        world.count += 1
        return GroupMember.NON_GROUP_MEMBER
    communicator = None
    if world.communicator is not None and "mpi" in asked.values() and len(chosen) > 1:
        everyone = world.communicator
        communicator = everyone.Create_group(
            everyone.Get_group().Incl(chosen), world.count % 32768
        )  # fmt: skip
    elif "mpi" in asked.values() and len(chosen) > 1:
        raise RuntimeError(
            "new_group: backend 'mpi' needs a job whose init_process_group asked for it"
        )
    group = make_group(
        chosen, asked, seconds, whole.backend if backend is None else backend.lower(),
        communicator, group_desc or "",
    )  # fmt: skip
    group.bound_device_id = device_id
    return group


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of `group_size` ranks that follow one another; all ranks of the job call this.

    Returns this rank's group, and all of them. By default there is one for each machine, of as many
    ranks as it has GPUs. ValueError for a size that does not divide the number of ranks.
    """
    if group_size is None:
        if not backends.is_usable("cuda"):
            raise ValueError(
                "Default group size only takes effect when CUDA is available."
                "If your subgroup using a backend that does not depend on CUDA,"
                "please pass in 'group_size' correctly."
            )
        group_size = backends.get("cuda").device_count()
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    ranks = get_process_group_ranks(group)
    if len(ranks) < group_size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size ({len(ranks)})"
        )
    if len(ranks) % group_size:
        raise ValueError(f"The world size ({len(ranks)}) must be divisible by '{group_size=}'")
    parts = [ranks[i : i + group_size] for i in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of the ranks in each list, no rank in two; all ranks of the job call this.

    Returns this rank's group, or None if it is in none, and all of them.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    homes: dict[int, list[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if homes.setdefault(rank, ranks) is not ranks:
                raise ValueError(
                    f"Rank {rank} has appeared in both subgroup {homes[rank]} and {ranks}"
                )
    groups = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        for ranks in ranks_per_subgroup_list
    ]
    own = [g for g, ranks in zip(groups, ranks_per_subgroup_list) if world.rank in ranks]
    return (own[0] if own else None), groups
