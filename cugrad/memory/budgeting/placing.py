"""Puts a value where it waits for backward: it stays, leaves, or is stored in fewer bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import backends
from ...backends.several import OfDevice
from ..offloading.engine import engine_of
from ..offloading.options import OffloadOptions
from ..recomputing.values import Value
from .limiting import Away, Limiter, sent
from .planning import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE
from .rates import CODEC

__all__ = ["PLACEMENTS", "Encoded", "Places", "allowed"]

PLACEMENTS = (KEEP, OFFLOAD, RECOMPUTE, COMPRESS, DISK)


def allowed(placements: Any, lossless: bool, device: str, host_is_short: bool) -> frozenset[str]:
    """The placements that plans may use, of those that were asked for; ValueError for others."""
    several = isinstance(placements, Iterable) and not isinstance(placements, str)
    names = tuple(placements) if several else ()
    if KEEP not in names or any(p not in PLACEMENTS for p in names):
        raise ValueError(
            f"budget: placements: got {placements!r}, want several of {', '.join(PLACEMENTS)}, "
            "'keep' among them"
        )
    if lossless and COMPRESS in names and names != PLACEMENTS:
        raise ValueError("budget: placements: 'compress' is not lossless; it needs lossless=False")
    usable = set(names)
    if lossless:
        usable.discard(COMPRESS)
    if device == "cpu":
        usable.discard(OFFLOAD)
    elif names == PLACEMENTS and not host_is_short:  # the host's memory is faster
        usable.discard(DISK)
    return frozenset(usable)


class Encoded:
    """A value that is stored in fewer bytes on the device."""

    __slots__ = ("xp", "codec", "payload", "kind", "limiter")
    stays = False

    def __init__(self, xp: Any, codec: Any, root: Any, limiter: Limiter) -> None:
        self.xp, self.codec, self.kind, self.limiter = xp, codec, (root.dtype, root.shape), limiter
        limiter.make_room(root.nbytes)
        self.payload = codec.encode(xp, root)

    def array(self) -> Any:
        self.limiter.make_room(2 * self.payload.nbytes)
        return self.codec.decode(self.xp, self.payload, *self.kind)


class Places:
    """Where the values of one budget's steps go."""

    def __init__(self, device: str, index: int | None, limit: int, host_limit: int | None) -> None:
        self.backend, self.index = backends.get(device), index
        self.engine = None if device == "cpu" else engine_of(self.backend, index)
        of_device: Any = OfDevice(self.backend, index)
        self.limiter = Limiter(of_device, self.engine, limit)
        self.under_way = min(limit // 32, 1 << 30)  # bytes that the link may hold, each way
        self.options = OffloadOptions(1, 0, self.under_way, self.under_way, host_limit, exact=True)
        if self.engine is not None:
            self.options.room = self.limiter.room
        self._disk: OffloadOptions | None = None

    def copies(self, backlog: int, lookahead: int) -> None:
        """A step begins. Sets how many bytes may be under way out, and back ahead of need."""
        self.options.backlog, self.options.lookahead = backlog, lookahead

    @property
    def is_leaving(self) -> bool:
        """Whether a copy out holds memory."""
        return self.engine is not None and self.engine.out.leaving_bytes > 0

    def are_ours(self, root: Any) -> bool:
        """Whether a storage is on the device that the limit is for."""
        backend = backends.backend_of(root)
        return backend is self.backend and backend.device_index(root) in (None, self.index)

    def put(self, value: Value, root: Any, place: str) -> bool:
        """Places a value. False if there was no room for it there, so that it has to stay."""
        if place in (OFFLOAD, DISK):
            value.leave(self.sent(value, root, place))
        elif place == COMPRESS and root.flags.c_contiguous:
            from ..codecs import codec_of

            codec = codec_of(CODEC)
            if codec.applies(root.dtype):
                value.leave(Encoded(self.backend.xp, codec, root, self.limiter))
        return value.away is not None

    def sent(self, value: Value, root: Any, place: str) -> Away | None:
        """A value on its way out; None if there is no room for it elsewhere."""
        if self.engine is None:  # of a host, on its way to a disk
            self.engine = self.limiter.engine = engine_of(self.backend, self.index)
        options = self.options
        if place == DISK:
            if self._disk is None:
                from ..disk.store import DiskStore

                self._disk = OffloadOptions(
                    1, 0, self.under_way, self.under_way, None, False, DiskStore()
                )
            options = self._disk
        return sent(value, root, self.engine, options, self.limiter)
