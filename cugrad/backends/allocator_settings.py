"""PYTORCH_ALLOC_CONF: what it asks of the memory of a CUDA device, read when CUDA is first used."""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple

__all__ = ["AllocatorSettings", "settings_of", "settings_of_environment"]

# Settings of PyTorch's own allocator, which ours has no like of.
OTHERS = frozenset({
    "max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold",
    "expandable_segments", "roundup_power2_divisions", "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
    "pinned_use_cuda_host_register", "pinned_num_register_threads",
    "pinned_use_background_threads", "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb",
})  # fmt: skip
VARIABLES = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


class AllocatorSettings(NamedTuple):
    """`fraction` of a device's memory that the pool may hold; bytes of page-locked memory to lock
    at once, `reserved`; and the names of settings that change nothing here.
    """

    fraction: float | None = None
    reserved: int = 0
    unused: tuple[str, ...] = ()


def settings_of(text: str) -> AllocatorSettings:
    """What `name:value,name:value` says; RuntimeError for a name that PyTorch does not know, for a
    value that cannot be, and for an allocator that is not here.

    >>> settings_of("per_process_memory_fraction:0.5,pinned_reserve_segment_size_mb:64")
    AllocatorSettings(fraction=0.5, reserved=67108864, unused=())
    """
    fraction, reserved, unused = None, 0, []
    for item in filter(None, (part.strip() for part in _items(text))):
        name, _, value = (part.strip() for part in item.partition(":"))
        try:
            if name == "per_process_memory_fraction":
                fraction = float(value)
                if not 0 <= fraction <= 1:
                    raise ValueError
            elif name == "pinned_reserve_segment_size_mb":
                reserved = int(value) << 20
                if reserved < 0:
                    raise ValueError
            elif name == "backend":
                if value != "native":
                    raise ValueError
            elif name in OTHERS:
                unused.append(name)
            else:
                raise RuntimeError(
                    f"Unrecognized key '{name}' in CUDA allocator config; known are backend, "
                    "per_process_memory_fraction, pinned_reserve_segment_size_mb, and others of "
                    "PyTorch's that change nothing here"
                )
        except ValueError:
            raise RuntimeError(
                f"CUDA allocator config: got {name}:{value}, want "
                + {
                    "per_process_memory_fraction": "a number from 0 to 1",
                    "pinned_reserve_segment_size_mb": "a number of MiB",
                    "backend": "backend:native: memory comes from CuPy's pool",
                }[name]
            ) from None
    return AllocatorSettings(fraction, reserved, tuple(unused))


def _items(text: str) -> list[str]:
    """The parts between commas that are in no brackets, as in roundup_power2_divisions:[256:1]."""
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            items.append("")
        else:
            items[-1] += letter
    return items


def settings_of_environment() -> AllocatorSettings:
    """Those of PYTORCH_ALLOC_CONF, or else of its old name; a warning for what changes nothing."""
    for variable in VARIABLES:
        text = os.environ.get(variable)
        if not text:
            continue
        settings = settings_of(text)
        if settings.unused:
            warnings.warn(
                f"{variable}: {', '.join(settings.unused)} changes nothing: memory comes from "
                "CuPy's pool, which has no such setting",
                UserWarning,
                stacklevel=3,
            )
        return settings
    return AllocatorSettings()
