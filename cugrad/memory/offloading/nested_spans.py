"""Lets a span that covers others have their bytes from where those have been sent already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends import Backend
from ...backends.lending.slab import SlabBlock
from .places import OnHost, Piece
from .span import Span

__all__ = ["absorb", "bring", "covered_by", "gaps_between", "send"]

# A row is saved, and has left, before the matrix is. What leaves then is the rest of the matrix:
# it comes back in pieces, the row from its own block, and whoever asks for the row has the matrix.


def covered_by(span: Span, others: Sequence[Span]) -> list[Span]:
    """The other spans of the same storage that lie within this one, and can become parts of it."""
    low, high = span.low, span.low + span.nbytes
    return sorted(
        [s for s in others
         if low <= s.low and s.low + s.nbytes <= high and s.session is span.session
         and s.options is span.options and s.options.spill is None and s.stream == span.stream
         and s.gathered is None and s.form is None and _was_sent_only(s.copy)],
        key=lambda s: (s.low, -s.nbytes),
    )  # fmt: skip


def _was_sent_only(copy: Any) -> bool:
    """Whether a block has the bytes, and they have not been brought back from it."""
    return type(copy) is OnHost and copy.last_use is copy.copied


def gaps_between(span: Span, inner: list[Span]) -> list[tuple[int, int]]:
    """The ranges of a span's bytes that no span within it has."""
    gaps, at = [], 0
    for s in inner:
        low = s.low - span.low
        if low > at:
            gaps.append((at, low))
        at = max(at, low + s.nbytes)
    if at < span.nbytes:
        gaps.append((at, span.nbytes))
    return gaps


def send(
    backend: Backend, flat: Any, block: SlabBlock, gaps: list[tuple[int, int]], stream: Any
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


def absorb(span: Span, inner: list[Span], gaps: list[tuple[int, int]]) -> None:
    """Makes one span of several. A block has the gaps; the inner spans bring the other bytes, and
    become parts of the larger span with all that they hold.
    """
    block, at = span.copy.block, 0
    pieces = [Piece(0, block, 0, 0)]
    for low, high in gaps:
        pieces.append(Piece(low, block, at, high - low))
        at += high - low
    at = 0
    for s in inner:
        shift, copy = s.low - span.low, s.copy
        for offset, part, start, nbytes in copy.pieces or [Piece(0, copy.block, 0, s.nbytes)]:
            skip = max(0, at - shift - offset)  # which another one has
            pieces.append(Piece(shift + offset + skip, part, start + skip, max(0, nbytes - skip)))
        at = max(at, shift + s.nbytes)
    span.absorb(inner, pieces)
