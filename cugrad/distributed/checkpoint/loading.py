"""`load`: each rank reads what it has, whoever wrote it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.mode import no_grad
from ...tensor import Tensor, make
from ..groups import ProcessGroup
from ..tensor.dtensor import DTensor
from .files import FileSystemReader, Metadata, SavedEntry, read_chunk, read_object
from .plan import Leaf, box_of, folder_of, is_stateful, leaves_of, on_all_ranks, ranks_of

__all__ = ["load"]


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: Any = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Fills a state dict from a checkpoint that any number of ranks has written; all ranks call it.

    Tensors are written to in place, this rank's part of DTensors; other objects are replaced. What
    has a `load_state_dict` method is given what was loaded. Objects come from pickles: load what
    you trust.

    CheckpointException, on all ranks (of a process alone the error itself): FileNotFoundError where
    there is no checkpoint, RuntimeError for a name that it lacks, ValueError for another shape.
    """
    if planner is not None:
        raise NotImplementedError("load: got planner=, want None")
    folder = folder_of("load", checkpoint_id, storage_reader)
    group = ranks_of(process_group, no_dist)
    stateful = {k: v for k, v in state_dict.items() if is_stateful(v)}
    state = {k: v.state_dict() if k in stateful else v for k, v in state_dict.items()}

    def read() -> None:
        metadata = Metadata.read(folder)
        leaves = leaves_of(state)
        for leaf in leaves:
            _check(leaf, metadata.entries.get(leaf.name))
        for leaf in leaves:
            _fill(leaf, metadata.entries[leaf.name], folder)

    on_all_ranks(group, "load", read)
    for key, value in state.items():
        if key in stateful:
            stateful[key].load_state_dict(value)
        else:
            state_dict[key] = value


def _check(leaf: Leaf, entry: SavedEntry | None) -> None:
    if entry is None:
        raise RuntimeError(f"Missing key in checkpoint state_dict: {leaf.name}.")
    if not isinstance(leaf.value, Tensor) or entry.dtype is None:
        if isinstance(leaf.value, Tensor):
            raise ValueError(f"load: {leaf.name} was saved as an object, and is a tensor here")
        return
    if list(leaf.value.shape) != entry.shape:
        raise ValueError(
            f"Size mismatch between saved {entry.shape} and current: {list(leaf.value.shape)} for "
            f"{leaf.name}"
        )


def _fill(leaf: Leaf, entry: SavedEntry, folder: Path) -> None:
    value = leaf.value
    if entry.dtype is None:
        leaf.replace(read_object(folder, entry.chunks[0]))
        return
    dtype = getattr(dtypes, {"bool": "bool_"}.get(entry.dtype, entry.dtype)).numpy
    if not isinstance(value, Tensor):  # the tensor takes the place of what is there
        leaf.replace(make(_elements(entry, folder, dtype, [0] * len(entry.shape), entry.shape)))
        return
    host = make(_elements(entry, folder, dtype, *box_of(value)))
    local = value.to_local() if isinstance(value, DTensor) else value.detach()
    with no_grad():
        local.copy_(host)


def _elements(
    entry: SavedEntry, folder: Path, dtype: Any, offsets: list[int], sizes: list[int]
) -> Any:  # fmt: skip
    """The elements of a box of a tensor, from all chunks that have some of it."""
    out = np.empty(sizes, dtype)
    for chunk in entry.chunks:
        there, here = [], []
        for begin, size, first, extent in zip(chunk.offsets, chunk.sizes, offsets, sizes):
            low, high = max(begin, first), min(begin + size, first + extent)
            there.append(slice(low - begin, high - begin))
            here.append(slice(low - first, high - first))
        if all(s.start < s.stop for s in here):
            out[tuple(here)] = read_chunk(folder, chunk, dtype, tuple(there))
    return out
