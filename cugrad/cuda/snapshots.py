"""Who holds what of a device's memory, and how it came to that, as memory_viz reads it."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

from .. import backends
from ..backends.allocations import ACTIONS, CONTEXTS, MemorySegment, Stack, history
from ..backends.allocator_settings import VARIABLES
from .devices import DeviceLike, backend_at, device_count, is_initialized, is_simulated_device

__all__ = [
    "_allocation_traceback", "_dump_snapshot", "_record_memory_history", "_snapshot",
    "memory_snapshot",
]  # fmt: skip

Frames = list[dict[str, Any]]
ALLOCATING = os.path.dirname(backends.__file__)  # whose innermost frames say nothing


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """The segments of all devices' memory and the blocks that they are cut into: PyTorch's dicts.

    A segment has `device, address, total_size, allocated_size, active_size, requested_size, stream,
    segment_type` ("small" or "large"), `segment_pool_id, is_expandable, frames, blocks`, a block
    `address, size, requested_size, state` ("active_allocated" or "inactive") and `frames`.
    `mempool_id` asks for those of one pool, as a CUDA graph has. There are no traces among them,
    whatever `include_traces` says, as in PyTorch: see `cuda.memory._snapshot`.

    >>> import cugrad as torch
    >>> torch.cuda.memory_snapshot() if not torch.cuda.is_available() else []
    []
    """
    segments = [_as_dict(segment) for segment in _segments(None)]
    if mempool_id is not None:
        segments = [each for each in segments if each["segment_pool_id"] == tuple(mempool_id)]
    return segments


def _segments(device: DeviceLike) -> list[MemorySegment]:
    """Of all devices that have been used, or of the simulated one if it is named."""
    segments: list[MemorySegment] = []
    if is_simulated_device(device):
        return list(backend_at(device)[0].memory_segments())
    if not is_initialized():
        return segments
    for index in range(device_count()):
        backend, _ = backend_at(index)
        with backend.use_device(index):
            segments += backend.memory_segments()
    return segments


def _as_dict(segment: MemorySegment) -> dict[str, Any]:
    used = sum(block.size for block in segment.blocks if block.is_used)
    return {
        "device": segment.device, "address": segment.address, "total_size": segment.size,
        "allocated_size": used, "active_size": used,
        "requested_size": sum(block.requested for block in segment.blocks),
        "stream": segment.stream, "segment_type": "large" if segment.is_large else "small",
        "segment_pool_id": segment.pool, "is_expandable": False, "frames": [],
        "blocks": [
            {
                "address": block.address, "size": block.size, "requested_size": block.requested,
                "state": "active_allocated" if block.is_used else "inactive",
                "frames": _frames(block.stack),
            }
            for block in segment.blocks
        ],
    }  # fmt: skip


def _frames(stack: Stack) -> Frames:
    """What ran, from the inside, but for backends that allocate."""
    frames: Frames = [
        {"filename": code.co_filename, "line": line, "name": code.co_name} for code, line in stack
    ]
    first = next((k for k, f in enumerate(frames) if not f["filename"].startswith(ALLOCATING)), 0)
    return frames[first:]


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | bool | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Records who allocates and frees memory of CUDA devices, all of them, until told None.

    `enabled` is "state" for the stacks of what is held, "all" for a history of up to `max_entries`
    as well. `context` says which stacks are kept: None, "state" (of what is held), "alloc" (of
    allocations in the history, too) or "all" (of frees, too). They are Python's, of whichever
    `stacks`. `skip_actions` leaves actions out. `device` may name the simulated device, which is
    recorded then. RuntimeError for other values, and for what there is not: compilers, and
    annotations by the profiler.

    >>> _record_memory_history(None)
    """
    if isinstance(enabled, bool):  # PyTorch's older form of these arguments
        enabled, context = "all" if enabled else None, "all" if context else None
    _check("enabled", enabled, (None, "state", "all"))
    _check("context", context, (None, *CONTEXTS))
    _check("stacks", stacks, ("python", "all"))
    for action in skip_actions or ():
        _check("skip_actions", action, ACTIONS)
    for name, asked in (("compile_context", compile_context),
                        ("global_record_annotations", global_record_annotations)):  # fmt: skip
        if asked:
            raise RuntimeError(f"_record_memory_history: there is no {name} here; leave it False")
    if enabled is not None:
        backend_at(device)[0].watch_memory()
    if clear_history:
        history.entries.clear()
    history.record(enabled, context, max_entries, skip_actions or ())  # type: ignore[arg-type]


def _check(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise RuntimeError(
            f"_record_memory_history: got {name}={value!r}, want one of {list(choices)}"
        )


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The segments of all devices, and what `_record_memory_history` has recorded of each; of
    `device` if that is the simulated one.

    A dict of `segments`, as memory_snapshot() has them, and `device_traces`: for each device
    entries of `action, addr, size, stream, time_us, pool_id` and `frames`. RuntimeError for
    `augment_with_fx_traces`: nothing here runs code that fx has made.

    >>> sorted(_snapshot())
    ['allocator_settings', 'device_traces', 'external_annotations', 'segments']
    """
    if augment_with_fx_traces:
        raise RuntimeError("_snapshot: no graph of fx is compiled here; leave it False")
    traces: list[list[dict[str, Any]]] = [[] for _ in range(max(1, device_count()))]
    for index in range(len(traces)):
        history.note("snapshot", index, 0, 0)
    for entry in list(history.entries):
        place = "device_free" if entry.action == "oom" else "addr"
        traces[entry.device].append({
            "action": entry.action, place: entry.address, "size": entry.size,
            "stream": entry.stream, "time_us": entry.microseconds, "pool_id": entry.pool,
            "frames": _frames(entry.stack),
        })  # fmt: skip
    settings = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
    return {
        "segments": [_as_dict(segment) for segment in _segments(device)],
        "device_traces": traces, "external_annotations": [],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": settings, "max_split_size": -1,
            "garbage_collection_threshold": 0.0, "expandable_segments": False,
        },
    }  # fmt: skip


def _dump_snapshot(
    filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Writes _snapshot() to a file, which pytorch.org/memory_viz and PyTorch's _memory_viz.py show.

    `filename` is a path; `augment_with_fx_traces` as in _snapshot().
    """
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _allocation_traceback(data_ptr: int) -> Frames | None:
    """The frames that allocated the block which begins at an address; None where it is not known.

    It takes `_record_memory_history` before the allocation.
    """
    for segment in _segments(None):
        for block in segment.blocks:
            if block.address == data_ptr and block.is_used and block.stack:
                return _frames(block.stack)
    return None
