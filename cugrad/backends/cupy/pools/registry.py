"""All pools of device memory together: what they hold, and how much they may."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import cupy

from ...allocations import Reserved

__all__ = [
    "all_pools", "bytes_allocated", "bytes_reserved", "collect", "default_pool", "enter",
    "give_up_free_blocks", "limit_of", "most_reserved", "reserved_of", "returned", "set_limit",
]  # fmt: skip

_all_pools: dict[int, weakref.ref[Any]] = {}
_reserved: dict[int, Reserved] = {}  # by device
returned: deque[tuple[int, bool, int]] = deque()  # segments that the driver has again
limits: dict[int, int] = {}  # by device, the bytes that all pools may hold


# `used_bytes` of each pool, CuPy's default pool included, and of nothing that keeps SizedPools.
_used: tuple[Callable[[], int], ...] = ()


def enter(pools: Any) -> None:
    """Counts a pair of pools from now on, for as long as it is there."""
    key = id(pools)

    def leave(gone: Any) -> None:
        _all_pools.pop(key, None)
        _count_anew()

    _all_pools[key] = weakref.ref(pools, leave)
    _count_anew()


def _count_anew() -> None:
    global _used
    every = [pool for pools in all_pools() for pool in pools.pools]
    _used = tuple([pool.used_bytes for pool in (default_pool(), *every)])


def all_pools() -> list[Any]:
    """Those that there are: the process's, and those of CUDA graphs."""
    present = [reference() for reference in list(_all_pools.values())]
    return [pools for pools in present if pools is not None]


def reserved_of(device: int) -> Reserved:
    return _reserved.setdefault(device, Reserved())


def collect() -> None:
    """Counts what went back to the driver."""
    while returned:
        device, is_large, size = returned.popleft()
        reserved_of(device).took_back(is_large, size)


def bytes_reserved(device: int) -> int:
    """Bytes that pools hold of a device, CuPy's default pool included: of the current one."""
    collect()
    return reserved_of(device).bytes.of["all"].current + default_pool().total_bytes()


def most_reserved(device: int) -> int:
    """The most bytes that pools have held of the current device."""
    collect()
    return reserved_of(device).bytes.of["all"].peak + default_pool().total_bytes()


def bytes_allocated() -> int:
    """Bytes of blocks in use on the current device."""
    used = 0
    for of_pool in _used:
        used += of_pool()
    return used


def give_up_free_blocks() -> None:
    """Gives free blocks of all pools of the current device back to the driver."""
    default_pool().free_all_blocks()
    for pools in all_pools():
        for pool in pools.pools:
            pool.free_all_blocks()


def default_pool() -> Any:
    """CuPy's own, which has what was allocated before."""
    return cupy.get_default_memory_pool()


def set_limit(device: int, nbytes: int) -> None:
    limits[device] = nbytes


def limit_of(device: int) -> int:
    """Bytes that pools may hold of the current device; 0 for all that there are."""
    return limits.get(device) or int(default_pool().get_limit())
