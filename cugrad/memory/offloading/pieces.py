"""Lets a span that covers others have their bytes from where those have been sent already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...backends import Backend
from .session import Stored, nothing
from .slab import Block

__all__ = ["adopt", "bring", "covered_by", "gaps_between", "send"]

# A row is saved, and has left, before the matrix is. What leaves then is the rest of the matrix:
# it comes back in pieces, the row from its own block, and whoever asks for the row has the matrix.


class Piece(NamedTuple):
    """Where in a span some of its bytes belong, and where in page-locked memory they are."""

    offset: int
    block: Block
    start: int
    nbytes: int


def covered_by(stored: Stored, others: Sequence[Stored]) -> list[Stored]:
    """Those of other spans of the same storage that lie within one, and can be a part of it."""
    low, high = stored.low, stored.low + stored.nbytes
    found = [
        s for s in others
        if low <= s.low and s.low + s.nbytes <= high and s.session is stored.session
        and s.owner is stored.owner and s.owner.spill is None and s.stream == stored.stream
        and s.block is not None and s.last_use is s.copied and s.gathered is None
        and s.form is None
    ]  # fmt: skip
    return sorted(found, key=lambda s: (s.low, -s.nbytes))


def gaps_between(stored: Stored, inner: list[Stored]) -> list[tuple[int, int]]:
    """The bytes of a span, from and to, that none of the ones within it has."""
    found, at = [], 0
    for s in inner:
        low = s.low - stored.low
        if low > at:
            found.append((at, low))
        at = max(at, low + s.nbytes)
    if at < stored.nbytes:
        found.append((at, stored.nbytes))
    return found


def send(
    backend: Backend, flat: Any, block: Block, gaps: list[tuple[int, int]], stream: Any
) -> None:
    """Starts the copies of parts of some bytes, one behind the other, into a block."""
    start = 0
    for low, high in gaps:
        part = block.array[start : start + high - low]
        backend.copy_async(part, flat[low:high], stream)
        start += high - low


def bring(backend: Backend, flat: Any, pieces: list[Piece], stream: Any) -> None:
    """Starts the copies back of all pieces of a span."""
    for offset, block, start, nbytes in pieces:
        if nbytes:
            part = block.array[start : start + nbytes]
            backend.copy_async(flat[offset : offset + nbytes], part, stream)


def adopt(stored: Stored, inner: list[Stored], gaps: list[tuple[int, int]]) -> None:
    """Makes a span, of which a block has the gaps, the home of the ones within it, and of all that
    is theirs.
    """
    at = 0
    pieces = [Piece(0, stored.block, 0, 0)]
    for low, high in gaps:
        pieces.append(Piece(low, stored.block, at, high - low))
        at += high - low
    at = 0
    for s in inner:
        shift = s.low - stored.low
        assert s.block is not None
        for offset, block, start, nbytes in s.pieces or [Piece(0, s.block, 0, s.nbytes)]:
            skip = max(0, at - shift - offset)  # which another one has
            pieces.append(
                Piece(shift + offset + skip, block, start + skip, max(0, nbytes - skip))
            )
        at = max(at, shift + s.nbytes)
    before = [(s, s.views, s.waiting, s.block, s.pieces, s.device, s.root, s.away) for s in inner]
    try:
        stored.pieces = pieces
        for s in inner:
            _move(s, stored)
    except BaseException:  # all of them, or none
        stored.pieces = None
        for s, *values in before:
            s.views, s.waiting, s.block, s.pieces, s.device, s.root, s.away = values
            s.home = None
        raise


def _move(s: Stored, stored: Stored) -> None:
    """Makes a span the home of one within it."""
    stored.views += s.views
    stored.waiting += s.waiting
    s.home = stored, s.low - stored.low
    s.views = s.waiting = 0
    s.block, s.pieces, s.device, s.root = None, None, None, nothing
    stored.session.engine.out.away -= s.away
    s.away = 0
