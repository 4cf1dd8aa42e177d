"""The places where the bytes of a span may be, each with what it has there; see span.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...backends.lending.slab import SlabBlock

if TYPE_CHECKING:
    from .span import Span

__all__ = [
    "Absorbed", "Leaving", "OnDevice", "OnDisk", "OnHost", "Pageable", "Piece", "Restored",
    "Returning",
]  # fmt: skip


class Piece(NamedTuple):
    """Where in a span some of its bytes belong, and where in page-locked memory they are."""

    offset: int
    block: SlabBlock
    start: int
    nbytes: int


class OnDevice:
    """The bytes stay where they were, for the reason `why`: "alive", "last", "host full", ..."""

    __slots__ = ("flat", "why")
    is_back = False

    def __init__(self, flat: Any, why: str) -> None:
        self.flat, self.why = flat, why


class Leaving:
    """A copy to the place `to` is under way, and `flat` is held until it has ended."""

    __slots__ = ("flat", "to")
    is_back = False

    def __init__(self, flat: Any, to: OnHost | Pageable) -> None:
        self.flat, self.to = flat, to


class OnHost:
    """Page-locked memory has the bytes: a block, or several of which `pieces` says what is where.

    `file` is what threads write the block to, if it is on its way to a disk. `copied` is the event
    of the end of the copy, `last_use` that of the last one, out or back; each waits for the others.
    """

    __slots__ = ("block", "nbytes", "copied", "last_use", "pieces", "file")
    is_back = False

    def __init__(self, block: SlabBlock, nbytes: int, copied: Any) -> None:
        self.block, self.nbytes = block, nbytes
        self.copied = self.last_use = copied
        self.pieces: list[Piece] | None = None
        self.file: Any = None

    def use(self, event: Any) -> None:
        """A copy back reads the bytes until an event."""
        self.last_use = event

    def fill(self, event: Any) -> None:
        """A copy out writes some of the bytes until an event."""
        self.copied = self.last_use = event

    def blocks(self) -> list[SlabBlock]:
        """The blocks that have some of the bytes, each once."""
        several = {id(piece.block): piece.block for piece in self.pieces or ()}
        return list({id(self.block): self.block, **several}.values())


class Pageable:
    """Ordinary host memory has the bytes; `file` reads them."""

    __slots__ = ("file", "nbytes")
    is_back = False

    def __init__(self, file: Any, nbytes: int) -> None:
        self.file, self.nbytes = file, nbytes


class OnDisk(Pageable):
    """A store has the bytes, in a file; those that it had no room for are in memory still."""

    __slots__ = ()


class Returning:
    """The bytes are on their way back, ahead of need: in `flat`, when `arrived` has happened.

    Before a copy to the device has begun, while threads read a file, `flat` is None. What is
    encoded is not yet decoded.
    """

    __slots__ = ("origin", "flat", "arrived")
    is_back = True

    def __init__(self, origin: Any, flat: Any, arrived: Any) -> None:
        self.origin, self.flat, self.arrived = origin, flat, arrived


class Restored:
    """`flat` is the memory of the saved tensors again, until every view of it has been unpacked."""

    __slots__ = ("origin", "flat")
    is_back = True

    def __init__(self, origin: Any, flat: Any) -> None:
        self.origin, self.flat = origin, flat


class Absorbed:
    """The span has become a part of a larger one, `offset` bytes behind its begin."""

    __slots__ = ("span", "offset")
    is_back = False

    def __init__(self, span: Span, offset: int) -> None:
        self.span, self.offset = span, offset
