"""`load`: each rank reads what it has, whoever wrote it."""

from __future__ import annotations

import os
from typing import Any

from ...distributed.groups import ProcessGroup
from .default_planner import DefaultLoadPlanner
from .filesystem import FileSystemReader
from .planner import LoadPlan, LoadPlanner
from .storage import StorageReader
from .together import is_stateful, on_all_ranks, ranks_of

__all__ = ["load"]


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Fills a state dict from a checkpoint that any number of ranks has written; all ranks call it.

    Tensors are written to in place, this rank's part of DTensors; other objects are replaced. What
    has a `load_state_dict` method is given what was loaded. PyTorch's checkpoints are read as well.
    Objects come from pickles: load what you trust.

    CheckpointException, on all ranks (of a process alone the error itself): FileNotFoundError where
    there is no checkpoint, RuntimeError for a name that it lacks, ValueError for another shape.
    """
    if storage_reader is not None:
        storage_reader.reset(checkpoint_id)
    elif checkpoint_id is None:
        raise ValueError("load: want checkpoint_id=, a folder that all ranks see")
    reader = storage_reader or FileSystemReader(checkpoint_id)  # type: ignore[arg-type]
    planner = DefaultLoadPlanner() if planner is None else planner
    group = ranks_of(process_group, no_dist)
    rank = 0 if group is None else group.rank()
    stateful = {k: v for k, v in state_dict.items() if is_stateful(v)}
    state = {k: v.state_dict() if k in stateful else v for k, v in state_dict.items()}

    def own() -> LoadPlan:
        metadata = reader.read_metadata()
        planner.set_up_planner(state, metadata, rank == 0)
        reader.set_up_storage_reader(metadata, rank == 0, rank=rank, use_collectives=True)
        return reader.prepare_local_plan(planner.create_local_plan())

    plans = on_all_ranks(group, "load", own)

    def together() -> Any:
        if rank == 0:
            return reader.prepare_global_plan(planner.create_global_plan(plans))
        return None

    whole = on_all_ranks(group, "load", together)[0]
    on_all_ranks(
        group, "load", lambda: reader.read_data(planner.finish_plan(whole[rank]), planner).wait()
    )
    for key, value in state.items():
        if key in stateful:
            stateful[key].load_state_dict(value)
        else:
            state_dict[key] = value
