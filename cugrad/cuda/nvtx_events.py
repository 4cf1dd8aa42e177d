"""Passes texts on to an NVTX tool through the `nvtx` package, without registering them."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["Events"]

ASCII = 1  # NVTX_MESSAGE_TYPE_ASCII: the tool copies the text; 3 is one that is registered for ever
REGISTERED = 3
MARK = 0x5EEDC0DE  # a category that nothing else has, to find the structure by
# nvtxEventAttributes_v2: version, size, category, three about color and payload, one reserved, the
# payload, the type of the message, a gap, and the message.
LAYOUT = struct.Struct("<HHIiIiiQi4xQ")
VERSION = 3  # of NVTX
TYPE, MESSAGE = 32, 40  # bytes into it
MOST = 4096  # texts that the package keeps where it has to register them


class _Event:
    """What the package hands to a tool, for the events of one thread; `text` may be set."""

    def __init__(self, domain: Any) -> None:
        self.attributes = domain.get_event_attributes(message="cugrad", category=MARK)
        address = _address_of(self.attributes)
        self.known = address is not None
        if address is not None:
            self.text = ctypes.c_char_p.from_address(address + MESSAGE)
            ctypes.c_int32.from_address(address + TYPE).value = ASCII


def _address_of(attributes: Any) -> int | None:
    """Where the structure of NVTX lies within the package's object; None where it is not known.

    The package has no way to a text that is not registered, and keeps each for ever. NVTX itself
    has, and its structure is part of its ABI: it is recognised by all its fields, and by a category
    that changes when the package is asked to change it.
    """
    if attributes is None:  # no tool is attached
        return None
    size = getattr(type(attributes), "__basicsize__", 0)
    start = id(attributes)
    addresses = []
    for offset in range(0, size - LAYOUT.size + 1, 8):
        said = LAYOUT.unpack(ctypes.string_at(start + offset, LAYOUT.size))
        if said[:3] == (VERSION, LAYOUT.size, MARK) and said[8] == REGISTERED:
            addresses.append(start + offset)
    if len(addresses) != 1:
        return None
    attributes.category = None
    again = LAYOUT.unpack(ctypes.string_at(addresses[0], LAYOUT.size))
    return addresses[0] if again[2] == 0 and again[8] == REGISTERED else None


class Events:
    """Ranges and marks of a domain of the package. Nothing grows with the number of texts."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._here = threading.local()
        self._registered = 0

    def _event(self, kind: str) -> _Event:
        event = getattr(self._here, kind, None)
        if event is None:
            event = _Event(self._domain)
            setattr(self._here, kind, event)
        return event

    def _call(self, call: Callable[..., Any], message: str) -> Callable[..., Any]:
        """The call with a text."""
        event = self._event("plain")
        if event.known:
            event.text.value = message.encode()
            return partial(call, event.attributes)
        self._count()
        return partial(call, message=message)

    def _count(self) -> None:
        """Lets the package forget what it has registered, now and then: its part of it."""
        self._registered += 1
        if self._registered % MOST == 0:
            forget = getattr(type(self._domain), "get_registered_string", None)
            getattr(forget, "cache_clear", lambda: None)()

    def push(self, message: str) -> Callable[[], object]:
        """The call that begins a range of this thread, to be made before the next is asked for."""
        return self._call(self._domain.push_range, message)

    def start(self, message: str) -> Any:
        """Begins a range of no thread; `end_range` of the domain takes the result."""
        return self._call(self._domain.start_range, message)()

    def mark(self, message: str) -> None:
        """A point in time."""
        self._call(self._domain.mark, message)()

    def push_numbered(self, message: str, number: int) -> Callable[[], object]:
        """The call that begins a range of this thread with a whole number as its payload."""
        event = self._event("numbered")
        if event.known:
            event.text.value = message.encode()
            return partial(self._domain.push_range, event.attributes, payload=number)
        self._count()
        return partial(self._domain.push_range, message=message, payload=number)
