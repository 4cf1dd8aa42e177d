"""Says how many bytes of saved tensors are away from their device at this moment, and where."""

from __future__ import annotations

from typing import NamedTuple

from .disk.files import living
from .disk.store import _stores
from .offloading.engine import _engines

__all__ = ["Elsewhere", "bytes_elsewhere"]


class Elsewhere(NamedTuple):
    """Bytes of saved tensors of a device."""

    offloaded: int = 0  # not on the device nor on their way back, of what backward still wants
    in_flight: int = 0  # leaving, or brought back ahead of need
    pinned: int = 0  # page-locked host memory in use
    disk: int = 0  # in the files of all stores


NOWHERE = Elsewhere()


def bytes_elsewhere(device_type: str) -> Elsewhere:
    """Where saved bytes of all devices of a type are; asks no device, and waits for nothing.

    >>> bytes_elsewhere("cuda").offloaded
    0
    """
    if not _engines and not _stores:
        return NOWHERE
    total = NOWHERE
    for (kind, _), engine in _engines.copy().items():
        if kind == device_type:
            # what was dropped, and is taken off the sums at the engine's next turn
            dropped, ledger = list(engine.ledger.dropped), engine.ledger
            ahead = max(ledger.ahead - sum([each[0] for each in dropped]), 0)
            away = max(ledger.away - sum([each[1] for each in dropped]) - ahead, 0)
            total = Elsewhere(
                total.offloaded + away,
                total.in_flight + engine.out.leaving_bytes + ahead,
                total.pinned + engine.out.slab.used_bytes,
            )
    disk = 0
    for store in living(_stores):
        closed = sum([nbytes for _, _, nbytes, *_ in list(store._closed)])
        disk += max(store._extents.used - closed, 0)
    return total._replace(disk=disk)
