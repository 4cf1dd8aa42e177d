"""`save`: each rank writes what it alone has, and its share of what all have."""

from __future__ import annotations

import os
import pickle
import secrets
from pathlib import Path
from typing import Any

from ...backends import backend_of
from ...tensor import Tensor
from ..groups import ProcessGroup
from ..objects import broadcast_object_list
from ..tensor.dtensor import DTensor
from .files import FileSystemWriter, Metadata, PartWriter, SavedEntry
from .plan import Leaf, box_of, folder_of, is_stateful, leaves_of, on_all_ranks, ranks_of

__all__ = ["save"]


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: Any = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Writes tensors, DTensors and objects of nested dicts to a folder; all ranks call it.

    Each rank writes its parts of DTensors. Of what is on several ranks under one name, one of them
    writes it, so that all write about as much. What has a `state_dict` method is asked for it. The
    checkpoint is there in one step, when all ranks have written; until then one that was in the
    folder before stays as it is. With `no_dist` this process saves alone.

    CheckpointException, on all ranks, that names those which could not write; ValueError where
    tensors of one name differ in shape.

    >>> import tempfile
    >>> import cugrad as torch
    >>> import cugrad.distributed.checkpoint as dcp
    >>> state = {"net": torch.nn.Linear(2, 1).state_dict(), "step": 7}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = dcp.save(state, checkpoint_id=folder)
    ...     other = {"net": torch.nn.Linear(2, 1).state_dict(), "step": 0}
    ...     dcp.load(other, checkpoint_id=folder)
    >>> torch.equal(other["net"]["weight"], state["net"]["weight"]), other["step"]
    (True, 7)
    """
    if planner is not None or not use_collectives:
        raise NotImplementedError("save: got planner= or use_collectives=False: leave them out")
    folder = folder_of("save", checkpoint_id, storage_writer)
    group = ranks_of(process_group, no_dist)
    state = {k: v.state_dict() if is_stateful(v) else v for k, v in state_dict.items()}
    leaves = leaves_of(state)
    plans = on_all_ranks(group, "save", lambda: [_plan_of(leaf) for leaf in leaves])
    rank = 0 if group is None else group.rank()
    own = _shares(plans)[rank]
    words = [secrets.token_hex(8)]
    if group is not None:
        broadcast_object_list(words, group=group, group_src=0)
    parts = on_all_ranks(
        group, "save", lambda: _write([x for x in leaves if x.name in own], folder, words[0], rank)
    )
    metadata = Metadata({})
    for part in parts:
        for name, entry in part.items():
            metadata.entries.setdefault(name, SavedEntry(entry.dtype, entry.shape)).chunks.extend(
                entry.chunks
            )

    def publish() -> None:
        if rank == 0:
            metadata.write(folder)

    on_all_ranks(group, "save", publish)
    return metadata


def _plan_of(leaf: Leaf) -> tuple[str, str, tuple[Any, ...], int]:
    """A leaf's name, what all that have it agree in, the box that this rank has, and its bytes."""
    value = leaf.value
    if not isinstance(value, Tensor):
        return leaf.name, "an object", (), 0
    offsets, sizes = box_of(value)
    kind = f"{value.dtype} {list(value.shape)}"
    nbytes = int(value._array.nbytes) if isinstance(value, DTensor) else value.nbytes
    return leaf.name, kind, (tuple(offsets), tuple(sizes)), nbytes


def _shares(plans: list[Any]) -> list[set[str]]:
    """The names that each rank writes; the same on all ranks."""
    kinds: dict[str, tuple[int, str]] = {}
    holders: dict[Any, list[int]] = {}
    for rank, plan in enumerate(plans):
        for name, kind, box, nbytes in plan:
            first, other = kinds.setdefault(name, (rank, kind))
            if other != kind:
                raise ValueError(
                    f"save: {name!r} is {other} on rank {first}, and {kind} on rank {rank}: want "
                    "the same, or other names"
                )
            holders.setdefault((name, box, nbytes), []).append(rank)
    shares: list[set[str]] = [set() for _ in plans]
    load = [0] * len(plans)
    for (name, _, nbytes), ranks in sorted(holders.items(), key=lambda item: -item[0][2]):
        rank = min(ranks, key=lambda r: (load[r], r))
        shares[rank].add(name)
        load[rank] += nbytes
    return shares


def _write(leaves: list[Leaf], folder: Path, word: str, rank: int) -> dict[str, SavedEntry]:
    """Writes a rank's file; what is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    writer, entries, is_whole = PartWriter(folder, word, rank), {}, False
    try:
        for leaf in leaves:
            value = leaf.value
            if isinstance(value, Tensor):
                array: Any = value._array
                offsets, sizes = box_of(value)
                entry = SavedEntry(str(value.dtype).rpartition(".")[2], list(value.shape))
                if array.size:
                    host = backend_of(array).to_host(array)
                    entry.chunks.append(writer.write(host, offsets, sizes))
            else:
                entry = SavedEntry(None, [])
                entry.chunks.append(writer.write(pickle.dumps(value), [], []))
            entries[leaf.name] = entry
        is_whole = True
    finally:
        writer.close(is_whole)
    return entries
