"""Says how many bytes of saved tensors are away from their device at this moment, and where."""

from __future__ import annotations

from typing import NamedTuple

from .disk_store import _stores
from .engine import _engines

__all__ = ["Elsewhere", "bytes_elsewhere"]


class Elsewhere(NamedTuple):
    """Bytes of saved tensors of a device."""

    offloaded: int = 0  # not on the device, of storages that backward still wants
    in_flight: int = 0  # leaving, or brought back ahead of need
    pinned: int = 0  # page-locked host memory in use
    disk: int = 0  # in the files of all stores


def bytes_elsewhere(device_type: str) -> Elsewhere:
    """Where saved bytes of all devices of a type are; asks no device, and waits for nothing.

    >>> bytes_elsewhere("cuda").offloaded
    0
    """
    engines = [each for (kind, _), each in list(_engines.items()) if kind == device_type]
    disk = sum([store._extents.used for store in list(_stores)])
    return Elsewhere(
        sum([each.out.away for each in engines]),
        sum([each.out.leaving_bytes + max(each.ahead, 0) for each in engines]),
        sum([each.out.slab.used_bytes for each in engines]),
        disk,
    )
