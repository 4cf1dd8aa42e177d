"""The planners that are taken where no other is given: nested dicts of tensors and objects."""

from __future__ import annotations

import dataclasses
import io
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ...distributed.tensor.dtensor import DTensor
from ...distributed.tensor.placements import part_of
from ...tensor import Size, Tensor
from .. import load, save
from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner", "entries_of"]

Path = tuple[str | int, ...]


class StateEntry:
    """A tensor or object of a state dict: the keys on the way to it, and where it is."""

    def __init__(self, path: Path, holder: Any, key: Any) -> None:
        self.path, self.holder, self.key = path, holder, key

    @property
    def value(self) -> Any:
        return self.holder[self.key]


def entries_of(state_dict: Mapping[str, Any]) -> dict[str, StateEntry]:
    """What is in nested dicts, and in lists with tensors or dicts in them, by joined keys.

    ValueError where two have one name.
    """
    entries: dict[str, StateEntry] = {}
    waiting = [StateEntry((str(key),), state_dict, key) for key in reversed(list(state_dict))]
    while waiting:
        entry = waiting.pop()
        value, below = entry.value, None
        if isinstance(value, Mapping):
            below = [StateEntry((*entry.path, str(key)), value, key) for key in value]
        elif isinstance(value, list) and _is_deep(value):
            below = [StateEntry((*entry.path, i), value, i) for i in range(len(value))]
        if below is not None:
            waiting.extend(reversed(below))
            continue
        name = ".".join(map(str, entry.path))
        if name in entries:
            raise ValueError(f"duplicated flatten key {name}")
        entries[name] = entry
    return entries


def _is_deep(value: list[Any]) -> bool:
    """Whether a tensor or dict is in a list, or in lists within it."""
    waiting = [value]
    while waiting:
        for x in waiting.pop():
            if isinstance(x, (Tensor, Mapping)):
                return True
            if isinstance(x, list):
                waiting.append(x)
    return False


def box_of(tensor: Any) -> ChunkStorageMetadata:
    """Where this rank's part of a tensor begins, and how large it is."""
    sizes = list(tensor.shape)
    offsets = [0] * len(sizes)
    if isinstance(tensor, DTensor) and tensor._along is not None:
        group, dim = tensor._along
        rows = part_of(sizes[dim], group.rank(), group.size())
        offsets[dim], sizes[dim] = rows.start, rows.stop - rows.start
    return ChunkStorageMetadata(Size(offsets), Size(sizes))


def _is_elsewhere(value: Any) -> bool:
    """Whether this rank has no part of a tensor."""
    if not isinstance(value, DTensor):
        return False
    return value.device_mesh.get_coordinate() is None or (
        value.numel() > 0 and not value._array.size
    )


# ---------------------------------------------------------------------- saving


class DefaultSavePlanner(SavePlanner):
    """Each rank writes its parts of DTensors; what is on several ranks one of them writes.

    Args:
        flatten_state_dict: whether what is in nested dicts is written by itself.
        flatten_sharded_tensors: PyTorch's for tensors of its former kind; True.
        dedup_save_to_lowest_rank: whether the lowest rank writes what is on several, rather than
            the one that has least to write.
        enable_plan_caching: False: ranks tell their plans in each save.
    """

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None, dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:  # fmt: skip
        if not flatten_sharded_tensors or dedup_replicated_tensors is not None:
            raise NotImplementedError(
                "DefaultSavePlanner: got flatten_sharded_tensors=False or "
                "dedup_replicated_tensors=, which PyTorch has for what is no more: leave it out"
            )
        if enable_plan_caching:
            raise NotImplementedError(
                "DefaultSavePlanner: got enable_plan_caching=True, want False"
            )
        self.flatten_state_dict = flatten_state_dict
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        if self.flatten_state_dict:
            entries = entries_of(state_dict)
            self.mappings = {name: entry.path for name, entry in entries.items()}
            state_dict = {name: entry.value for name, entry in entries.items()}
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        items = [
            _write_item(name, value)
            for name, value in self.state_dict.items()
            if not _is_elsewhere(value)
        ]
        self.plan = SavePlan(items, planner_data=self.mappings if self.flatten_state_dict else None)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        _check_alike(all_plans)
        plans = _without_doubles(all_plans, self.dedup_save_to_lowest_rank)
        entries: dict[str, Any] = {}
        numbered = []
        for plan in plans:
            items = []
            for item in plan.items:
                data = item.tensor_data
                if data is None:
                    entries[item.index.fqn] = BytesStorageMetadata()
                    items.append(item)
                    continue
                entry = entries.setdefault(
                    item.index.fqn, TensorStorageMetadata(data.properties, data.size, [])
                )
                index = dataclasses.replace(item.index, index=len(entry.chunks))
                items.append(dataclasses.replace(item, index=index))
                entry.chunks.append(data.chunk)
            numbered.append(dataclasses.replace(plan, items=items))
        _check_whole(entries)
        mappings = {
            name: path for plan in plans for name, path in (plan.planner_data or {}).items()
        }
        self.global_plan = numbered
        self.metadata = Metadata(entries, mappings if self.flatten_state_dict else None)
        return numbered, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """What the state dict has there: this rank's part of a DTensor."""
        value = self.state_dict[index.fqn]
        return value.to_local() if isinstance(value, DTensor) else value

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written for it: an object as bytes."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        data = io.BytesIO()
        save(object, data)
        return data


def _write_item(name: str, value: Any) -> WriteItem:
    if not isinstance(value, Tensor):
        return WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO)
    kind = WriteItemType.SHARD if isinstance(value, DTensor) else WriteItemType.TENSOR
    box = box_of(value)
    data = TensorWriteData(box, TensorProperties.create_from_tensor(value), Size(value.shape))
    return WriteItem(MetadataIndex(name, box.offsets), kind, tensor_data=data)


def _check_alike(plans: list[SavePlan]) -> None:
    """ValueError where ranks have tensors of other shapes or dtypes under one name."""
    kinds: dict[str, tuple[int, str]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            data, name = item.tensor_data, item.index.fqn
            kind = "an object" if data is None else f"{data.properties.dtype} {list(data.size)}"
            first, other = kinds.setdefault(name, (rank, kind))
            if other != kind:
                raise ValueError(
                    f"save: {name!r} is {other} on rank {first}, and {kind} on rank {rank}: want "
                    "the same, or other names"
                )


def _check_whole(entries: dict[str, Any]) -> None:
    """ValueError where ranks have not all elements of a tensor."""
    for name, entry in entries.items():
        if isinstance(entry, TensorStorageMetadata):
            count = sum(chunk.sizes.numel() for chunk in entry.chunks)
            if count != entry.size.numel():
                raise ValueError(
                    f"Failed to validate global plan: {name!r} has {entry.size.numel()} elements, "
                    f"of which ranks have {count}: want parts that make up the whole"
                )


def _without_doubles(plans: list[SavePlan], to_lowest_rank: bool) -> list[SavePlan]:
    """Plans in which each thing is written once, so that all ranks write about as much."""
    holders: dict[MetadataIndex, list[int]] = defaultdict(list)
    sizes: dict[MetadataIndex, int] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            holders[item.index].append(rank)
            sizes[item.index] = item.tensor_storage_size() or 1
    load, writer = [0] * len(plans), {}
    for index in sorted(holders, key=lambda i: -sizes[i]):
        ranks = holders[index]
        rank = min(ranks) if to_lowest_rank else min(ranks, key=lambda r: (load[r], r))
        writer[index] = rank
        load[rank] += sizes[index]
    return [
        dataclasses.replace(plan, items=[x for x in plan.items if writer[x.index] == rank])
        for rank, plan in enumerate(plans)
    ]


# ---------------------------------------------------------------------- loading


class DefaultLoadPlanner(LoadPlanner):
    """Each rank reads the boxes that it has, from all that were written.

    Args:
        flatten_state_dict: whether what is in nested dicts was written by itself.
        flatten_sharded_tensors: PyTorch's for tensors of its former kind; True.
        allow_partial_load: whether names that the checkpoint lacks stay as they are.
    """

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:  # fmt: skip
        if not flatten_sharded_tensors:
            raise NotImplementedError(
                "DefaultLoadPlanner: got flatten_sharded_tensors=False, which PyTorch has for what "
                "is no more: leave it out"
            )
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        self.original_state_dict = state_dict
        self._entries = {name: StateEntry((name,), state_dict, name) for name in state_dict}
        if self.flatten_state_dict:
            self._entries = entries_of(state_dict)
            self.mappings = {name: entry.path for name, entry in self._entries.items()}
        self.state_dict = {name: entry.value for name, entry in self._entries.items()}
        self.metadata, self.is_coordinator = metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        items: list[ReadItem] = []
        for name, value in self.state_dict.items():
            entry = self.metadata.state_dict_metadata.get(name)
            if entry is None:
                if not self.allow_partial_load:
                    raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
                continue
            if isinstance(entry, BytesStorageMetadata):
                index, nothing = MetadataIndex(name), Size((0,))
                items.append(
                    ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)
                )
                continue
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"Invalid checkpoint metadata for {name}, expected BytesStorageMetadata but "
                    f"found {type(entry).__name__}: it was saved as a tensor, and is "
                    f"{type(value).__name__} here"
                )
            if tuple(entry.size) != tuple(value.shape):
                raise ValueError(
                    f"Size mismatch between saved {entry.size} and current: {value.shape} for "
                    f"{name}"
                )
            if not _is_elsewhere(value):
                items += _reads(name, box_of(value), entry.chunks)
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        entry = self._entries[read_item.dest_index.fqn]
        entry.holder[entry.key] = load(value, weights_only=False)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """This rank's part of what the state dict has there."""
        value = self.state_dict[index.fqn]
        return value.to_local() if isinstance(value, DTensor) else value.detach()

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The elements of it that are written to."""
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)


def narrowed(tensor: Tensor, offsets: Size, lengths: Size) -> Tensor:
    """A box of a tensor, which shares its memory."""
    for dim, (begin, length) in enumerate(zip(offsets, lengths, strict=True)):
        if length != tensor.shape[dim]:
            tensor = tensor.narrow(dim, begin, length)
    return tensor


def _reads(name: str, box: ChunkStorageMetadata, chunks: list[ChunkStorageMetadata]) -> Any:
    """What of the boxes that were written one box needs."""
    for i, chunk in enumerate(chunks):
        there, here, lengths = [], [], []
        for begin, size, first, extent in zip(
            chunk.offsets, chunk.sizes, box.offsets, box.sizes, strict=True
        ):
            low, high = max(begin, first), min(begin + size, first + extent)
            there.append(low - begin)
            here.append(low - first)
            lengths.append(high - low)
        if all(length > 0 for length in lengths):
            yield ReadItem(
                LoadItemType.TENSOR, MetadataIndex(name, box.offsets, 0), Size(here),
                MetadataIndex(name, chunk.offsets, i), Size(there), Size(lengths),
            )  # fmt: skip
