"""`save` and `async_save`: each rank writes what it alone has, and its share of what all have."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

from ...autograd.mode import no_grad
from ...distributed.groups import ProcessGroup
from ...distributed.subgroups import new_group
from ...distributed.tensor.dtensor import DTensor
from ...tensor import Tensor
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemWriter
from .metadata import Metadata
from .planner import SavePlan, SavePlanner
from .storage import StorageWriter
from .together import is_stateful, on_all_ranks, ranks_of

__all__ = ["AsyncCheckpointerType", "async_save", "save"]

CheckpointId = str | os.PathLike[str] | None


class AsyncCheckpointerType(Enum):
    """What `async_save` writes in: a thread."""

    THREAD = "thread"
    PROCESS = "process"


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: CheckpointId = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Writes tensors, DTensors and objects of nested dicts to a folder; all ranks call it.

    Each rank writes its parts of DTensors. Of what is on several ranks under one name, one of them
    writes it, so that all write about as much. What has a `state_dict` method is asked for it. The
    checkpoint is there in one step, when all ranks have written; until then one that was in the
    folder before stays as it is. The format is PyTorch's. With `no_dist` this process saves alone.
    `planner` says what is written, `storage_writer` how; see DefaultSavePlanner, FileSystemWriter.

    CheckpointException, on all ranks, that names those which could not write (of a process alone
    the error itself), or where tensors of one name differ in shape.

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
    if not use_collectives:
        raise NotImplementedError("save: got use_collectives=False: leave it out")
    writer = _writer(checkpoint_id, storage_writer)
    return _save(_asked(state_dict), writer, planner, ranks_of(process_group, no_dist))


def _writer(checkpoint_id: CheckpointId, storage_writer: StorageWriter | None) -> StorageWriter:
    if storage_writer is not None:
        storage_writer.reset(checkpoint_id)
        return storage_writer
    if checkpoint_id is None:
        raise ValueError("save: want checkpoint_id=, a folder that all ranks see")
    return FileSystemWriter(checkpoint_id)


def _asked(state_dict: dict[str, Any]) -> dict[str, Any]:
    return {k: v.state_dict() if is_stateful(v) else v for k, v in state_dict.items()}


def _save(
    state: dict[str, Any], writer: StorageWriter, planner: SavePlanner | None,
    group: ProcessGroup | None,
) -> Metadata:  # fmt: skip
    planner = DefaultSavePlanner() if planner is None else planner
    rank = 0 if group is None else group.rank()
    is_first = rank == 0
    metadata = Metadata({})

    def own() -> SavePlan:
        planner.set_up_planner(
            state_dict=state, storage_meta=writer.storage_meta(), is_coordinator=is_first
        )
        writer.set_up_storage_writer(is_first, rank=rank, use_collectives=True)
        return writer.prepare_local_plan(planner.create_local_plan())

    plans = on_all_ranks(group, "save", own)

    def together() -> Any:
        if not is_first:
            return None
        whole, told = planner.create_global_plan(plans)
        return writer.prepare_global_plan(whole), told

    whole, metadata = on_all_ranks(group, "save", together)[0]
    results = on_all_ranks(
        group, "save", lambda: writer.write_data(planner.finish_plan(whole[rank]), planner).wait()
    )
    on_all_ranks(group, "save", lambda: writer.finish(metadata, results) if is_first else None)
    return metadata


# ---------------------------------------------------------------------- meanwhile


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: CheckpointId = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata]:
    """Copies what `save` would write to the host, and has a thread write it; all ranks call it.

    When it returns, the state dict may be changed. The Future's `result()` is the Metadata, or
    raises what went wrong. Ranks tell each other in a group of their own, so training may go on
    meanwhile; a `process_group` that is given must not be used until the result is there. Several
    saves are written one after the other.

    AssertionError where ranks have no backend for tensors on the CPU, by which the thread tells.
    """
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD or async_stager is not None:
        raise NotImplementedError(
            "async_save: got async_checkpointer_type= or async_stager=, want THREAD, and None"
        )
    if not use_collectives:
        raise NotImplementedError("async_save: got use_collectives=False: leave it out")
    group = ranks_of(process_group, no_dist)
    if group is not None and not {"", "cpu"} & group.engines.keys():
        raise AssertionError(
            "A CPU backend must be enabled for async save; try initializing process group with "
            "'cpu:mpi,cuda:nccl'"
        )
    if group is not None and process_group is None:
        group = _Meanwhile.group_beside(group)
    writer = _writer(checkpoint_id, storage_writer)
    with no_grad():
        state = _copied(_asked(state_dict))
    return _Meanwhile.threads().submit(_save, state, writer, planner, group)


class _Meanwhile:
    """The thread that writes, and the group in which it tells others."""

    pool: ThreadPoolExecutor | None = None
    beside: tuple[ProcessGroup, ProcessGroup] | None = None

    @classmethod
    def threads(cls) -> ThreadPoolExecutor:
        if cls.pool is None:
            cls.pool = ThreadPoolExecutor(1, "cugrad-checkpoint")
        return cls.pool

    @classmethod
    def group_beside(cls, group: ProcessGroup) -> ProcessGroup:
        """Another group of all ranks, made at the first save of a job."""
        if cls.beside is None or cls.beside[0] is not group:
            cls.beside = group, new_group(group.ranks)
        return cls.beside[1]


def _copied(value: Any) -> Any:
    """Nested dicts and lists with copies of their tensors, on the host."""
    result: dict[str, Any] = {}
    waiting: list[tuple[Any, Any, Any]] = [(value, result, "")]
    while waiting:
        source, holder, key = waiting.pop()
        if isinstance(source, dict):
            holder[key] = copy = dict.fromkeys(source)
            waiting.extend((x, copy, k) for k, x in source.items())
        elif type(source) is list:
            holder[key] = several = [None] * len(source)
            waiting.extend((x, several, i) for i, x in enumerate(source))
        elif isinstance(source, Tensor):
            holder[key] = _on_host(source)
        else:
            holder[key] = source
    return result[""]


def _on_host(tensor: Tensor) -> Any:
    if not isinstance(tensor, DTensor):
        return tensor.detach().to("cpu", copy=True)
    local = tensor.to_local().to("cpu", copy=True)
    return DTensor._of(local._array, tensor.device_mesh, tensor.placements, tensor.shape)
