"""Which arrays of lists go through a kernel together, and for how many a launch has room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .lists import ListGraph

__all__ = [
    "EACH", "MOST_BYTES", "Entry", "Groups", "launches_told", "room_for", "room_for_numbers",
    "rows_alike", "sorted_out",
]  # fmt: skip

Array = Any  # of a device that makes kernels

FLOATS = frozenset(["float16", "bfloat16", "float32", "float64"])
MOST_BYTES = 4096  # of a kernel's arguments, on every device and driver
EACH = "each"  # where constants lie that a launch is told for each array


def room_for(graph: ListGraph, lists: int, by_row: bool | str, one: bool) -> int:
    """How many arrays of each of so many lists the argument of a launch has room for; `by_row` is
    whether constants lie on the device, in one row or in one for each, or EACH.
    """
    each = 8 * len(graph.constants) if by_row == EACH else 4 * (bool(by_row) and not one)
    by_row = bool(by_row) and by_row != EACH
    heads, ints, values = 1 + by_row, 1, 0 if by_row or each else len(graph.constants)
    if graph.folds_each:
        each += 8
    elif graph.fold is not None:
        heads, ints = heads + 2 + len(graph.fold.results), ints + 2
        values += len(graph.fold.constants)
    used = 8 * (heads + values) + 4 * ints + 8
    return (MOST_BYTES - used) // (8 * lists + 8 + 4 + each)


def room_for_numbers(lists: int, settings: int) -> int:
    """The same of a kernel that computes constants."""
    return (MOST_BYTES - 8 * (1 + settings) - 16) // (8 * max(1, lists))


def rows_alike(
    counts: Sequence[Sequence[Array]], many: int
) -> Iterator[tuple[int, list[tuple[Array, ...]], tuple[str, ...]]]:
    """Runs of rows whose numbers have the same dtypes: where they begin, their arrays, dtypes."""
    first, rows, before = 0, list[tuple[Array, ...]](), None
    for at in range(many):
        arrays = tuple([column[at] for column in counts])
        names = tuple([str(x.dtype.name) for x in arrays])
        if before is not None and names != before:
            yield first, rows, before
            first, rows = at, []
        rows.append(arrays)
        before = names
    if before is not None:
        yield first, rows, before


class Entry(NamedTuple):
    """An array of each list: where they begin, how many elements they have, their place."""

    pointers: tuple[int, ...]
    size: int
    at: int
    arrays: tuple[Array, ...]


Groups = dict[Any, list[Entry]]  # by the dtypes of the lists, and whether vectors can be read


def launches_told(
    graph: ListGraph, lists: int, entries: Sequence[Entry], constants: Sequence[Any]
) -> Iterator[tuple[list[Entry], Any]]:
    """Entries with the constants that a launch is told for all of them, or with EACH, where these
    are as few launches.
    """
    same: dict[Any, list[Entry]] = {}
    for entry in entries:
        same.setdefault(constants[entry.at], []).append(entry)
    if len(same) > 1:
        apart, together = (room_for(graph, lists, way, True) for way in ("", EACH))
        if -(-len(entries) // together) <= sum(-(-len(some) // apart) for some in same.values()):
            yield list(entries), EACH
            return
    yield from ((some, row) for row, some in same.items())


def sorted_out(columns: Sequence[Sequence[Array]], written: Sequence[int]) -> Any:
    """Entries of arrays that a kernel can go through, in groups, and the places of the others.

    The arrays of a place must be dense and lie alike. Of lists that are `written` no memory may
    be in two arrays: then all places are left, to be taken one after another.
    """
    groups: Groups = {}
    left: list[int] = []
    for at, arrays in enumerate(zip(*columns)):
        size = arrays[0].size
        if not _alike(arrays):
            left.append(at)
            continue
        if size == 0:
            continue
        pointers = tuple([x.data.ptr for x in arrays])
        dtypes = tuple([x.dtype for x in arrays])
        bits = 0
        for pointer in pointers:
            bits |= pointer
        groups.setdefault((dtypes, bits % 16 == 0), []).append(Entry(pointers, size, at, arrays))
    for dtypes, whole in list(groups):
        kinds = {d.kind for d in dtypes}
        if kinds == {"c"}:  # pairs of reals
            real = tuple([np.dtype(f"f{d.itemsize // 2}") for d in dtypes])
            entries = [entry._replace(size=2 * entry.size) for entry in groups[dtypes, whole]]
            del groups[dtypes, whole]
            groups.setdefault((real, whole), []).extend(entries)
        elif not FLOATS.issuperset([d.name for d in dtypes]):
            left += [entry.at for entry in groups.pop((dtypes, whole))]
    if any(_overlap(groups, column) for column in written):
        return {}, list(range(len(columns[0])))
    return groups, sorted(left)


def _alike(arrays: Sequence[Array]) -> bool:
    """Whether arrays are of one shape, and their elements follow one another in one order."""
    first = arrays[0]
    shape = first.shape
    if all(x.flags.c_contiguous and x.shape == shape for x in arrays):
        return True
    steps = [s // first.dtype.itemsize for s in first.strides]
    for x in arrays:
        if x.shape != shape or [s // x.dtype.itemsize for s in x.strides] != steps:
            return False
    dense = 1
    for step, n in sorted(zip(steps, shape)):
        if n != 1 and step != dense:
            return False
        dense *= n
    return True


def _overlap(groups: Groups, column: int) -> bool:
    """Whether two arrays of a list share memory."""
    places = sorted(
        (entry.pointers[column], entry.pointers[column] + entry.size * dtypes[column].itemsize)
        for (dtypes, _), entries in groups.items()
        for entry in entries
    )
    return any(a[1] > b[0] for a, b in zip(places, places[1:]))
