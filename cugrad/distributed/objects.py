"""Collectives of Python's objects, which travel as pickles: ranks trust each other's programs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ..backends import get
from ..tensor import Tensor, make
from .checks import member_group, rank_in
from .collectives import all_gather, broadcast, gather, scatter
from .groups import ProcessGroup
from .point_to_point import recv, send

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list",
    "scatter_object_list", "send_object_list",
]  # fmt: skip


def _on_device(group: ProcessGroup, array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of these values in the memory that the group's engine moves."""
    types = group.engines.keys()
    if "" in types or "cpu" in types:
        return make(array)
    return make(get(next(iter(types))).asarray(array))


def _numbers(group: ProcessGroup, values: list[int]) -> Tensor:
    return _on_device(group, np.array(values, np.int64))


def _pickled(obj: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(pickle.dumps(obj), np.uint8).copy()


def _filled_up(array: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Bytes with zeros behind them, up to `width`."""
    whole = np.zeros(width, np.uint8)
    whole[: array.size] = array
    return whole


def _bytes(group: ProcessGroup, count: int) -> Tensor:
    return _on_device(group, np.empty(count, np.uint8))


def _loaded(tensor: Tensor) -> Any:
    return pickle.loads(tensor.cpu().numpy().tobytes())


def _sizes(group: ProcessGroup, count: int) -> list[int]:
    sizes = [_numbers(group, [0]) for _ in range(group.size())]
    all_gather(sizes, _numbers(group, [count]), group=group)
    return [int(s.item()) for s in sizes]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Fills `object_list` with the objects of all ranks, on all ranks."""
    chosen = member_group(group, "all_gather_object")
    if chosen is None:
        return
    own = _pickled(obj)
    parts = [_bytes(chosen, n) for n in _sizes(chosen, own.size)]
    all_gather(parts, _on_device(chosen, own), group=chosen)
    for i, part in enumerate(parts):
        object_list[i] = _loaded(part)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
    group: Any = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """Fills `object_gather_list` with the objects of all ranks, on the rank `dst` (0)."""
    chosen = member_group(group, "gather_object")
    if chosen is None:
        return
    root = rank_in(chosen, dst, group_dst, default=0)
    is_root = chosen.rank() == root
    if is_root and not object_gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if object_gather_list and not is_root:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    own = _pickled(obj)
    sizes = _sizes(chosen, own.size)
    width = max(sizes)  # of each part, as a gather's tensors have one shape on all ranks
    parts = [_bytes(chosen, width) for _ in sizes] if is_root else None
    gather(_on_device(chosen, _filled_up(own, width)), parts, group=chosen, group_dst=root)
    for i, part in enumerate(parts or ()):
        assert object_gather_list is not None
        object_gather_list[i] = _loaded(part[: sizes[i]])


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Makes the objects of a list those of the rank `src` (0).

    They travel in the memory of the group's engine: `device` is checked, and else of no matter.
    """
    chosen = member_group(group, "broadcast_object_list")
    if chosen is None:
        return
    root = rank_in(chosen, src, group_src, default=0)
    is_root = chosen.rank() == root
    pickles = [_pickled(obj) for obj in object_list] if is_root else []
    sizes = _numbers(chosen, [p.size for p in pickles] or [0] * len(object_list))
    broadcast(sizes, group_src=root, group=chosen)
    counts = [int(n) for n in sizes.tolist()]
    whole = _on_device(chosen, np.concatenate(pickles)) if is_root else _bytes(chosen, sum(counts))
    broadcast(whole, group_src=root, group=chosen)
    if not is_root:
        _unpack(whole, counts, object_list)


def _unpack(whole: Tensor, counts: list[int], objects: list[Any]) -> None:
    begin = 0
    for i, count in enumerate(counts):
        objects[i] = _loaded(whole[begin : begin + count])
        begin += count


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Writes an object of the list of rank `src` (0) to the first place of each rank's list."""
    chosen = member_group(group, "scatter_object_list")
    if chosen is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    root = rank_in(chosen, src, group_src, default=0)
    pickles: list[np.ndarray[Any, Any]] = []
    if chosen.rank() == root:
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        pickles = [_pickled(obj) for obj in scatter_object_input_list]
        if len(pickles) != chosen.size():
            raise ValueError(
                f"scatter_object_list: got {len(pickles)} objects, want one for each of the "
                f"{chosen.size()} ranks of the group"
            )
    sizes = _numbers(chosen, [p.size for p in pickles] or [0] * chosen.size())
    broadcast(sizes, group_src=root, group=chosen)
    counts = [int(n) for n in sizes.tolist()]
    width = max(counts)
    parts = [_on_device(chosen, _filled_up(p, width)) for p in pickles] or None
    own = _bytes(chosen, width)
    scatter(own, parts, group_src=root, group=chosen)
    scatter_object_output_list[0] = _loaded(own[: counts[chosen.rank()]])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
    group_dst: int | None = None, use_batch: bool = False,
) -> None:  # fmt: skip
    """Sends the objects of a list to a rank; `device` and `use_batch` are PyTorch's for NCCL."""
    chosen = member_group(group, "send_object_list")
    if chosen is None:
        return
    peer = rank_in(chosen, dst, group_dst)
    pickles = [_pickled(obj) for obj in object_list]
    send(_numbers(chosen, [p.size for p in pickles]), group_dst=peer, group=chosen)
    send(_on_device(chosen, np.concatenate(pickles)), group_dst=peer, group=chosen)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None, use_batch: bool = False,
) -> int:  # fmt: skip
    """Fills a list with the objects that a rank sends; returns which rank it was."""
    chosen = member_group(group, "recv_object_list")
    if chosen is None:
        return -1
    sizes = _numbers(chosen, [0] * len(object_list))
    source = recv(sizes, src=src, group=chosen, group_src=group_src)
    counts = [int(n) for n in sizes.tolist()]
    whole = _bytes(chosen, sum(counts))
    recv(whole, src=source, group=chosen)
    _unpack(whole, counts, object_list)
    return source
