"""Kernels over lists of arrays, a launch for as many arrays as its argument has room for.

A launch is told where the arrays begin and how long they are, in a table that is its argument: no
copy to the device goes before it. A block computes a part of one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from ...traced.arrays import Traced, reached_from
from ...traced.lists import ListGraph, MakeListGraph, NumbersGraph
from ..launches.starting import MOST_BYTES, StructKernel
from .expressions import STORED, name_of, signature
from .launch import OPTIONS
from .list_source import CHUNK, Members, list_source, numbers_source, told
from .reductions import tickets_of_stream
from .source import THREADS

__all__ = ["ListKernels", "NumberKernels"]

Array = Any  # cupy.ndarray

FLOATS = frozenset(["float16", "bfloat16", "float32", "float64"])
NUMPY_OF = {"long long": "i8", "int": "i4", "float": "f4", "double": "f8", "bool": "?"}

_kernels: dict[Any, tuple[StructKernel, np.dtype[Any], int]] = {}


class Entry(NamedTuple):
    """An array of each list: where they begin, how many elements they have, their place."""

    pointers: tuple[int, ...]
    size: int
    at: int


Groups = dict[Any, list[Entry]]  # by the dtypes of the lists, and whether vectors can be read


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
        groups.setdefault((dtypes, bits % 16 == 0), []).append(Entry(pointers, size, at))
    for dtypes, whole in list(groups):
        kinds = {d.kind for d in dtypes}
        if kinds == {"c"}:  # pairs of reals
            real = tuple([np.dtype(f"f{d.itemsize // 2}") for d in dtypes])
            entries = [entry._replace(size=2 * entry.size) for entry in groups[dtypes, whole]]
            del groups[dtypes, whole]
            groups.setdefault((real, whole), []).extend(entries)
        elif not FLOATS.issuperset(map(name_of, dtypes)):
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


class ListKernels:
    """Kernels of one graph, for lists of whatever dtypes: see `ListGraph`."""

    def __init__(self, graph_of: MakeListGraph) -> None:
        self.graph_of = graph_of
        self._graphs: dict[Any, ListGraph] = {}

    def sorted_out(self, columns: Sequence[Sequence[Array]], written: Sequence[int]) -> Any:
        """`(groups, left)`: what `run` takes, and the places of arrays that it cannot take."""
        return sorted_out(columns, written)

    def run(self, groups: Groups, constants: Any, skip: Array | None = None) -> None:
        """Changes the arrays of all groups in place; nothing where the number in `skip` is not 0.

        `constants` are a tuple for each place, or an array with a row for each, or with one row.
        """
        for (dtypes, whole), entries in groups.items():
            graph = self._graph(dtypes)
            if isinstance(constants, cupy.ndarray):
                values = {"constants": constants.data.ptr}
                one = constants.shape[0] == 1
                launches = [(entries, values, constants.dtype.name, one)]
            else:
                same: dict[Any, list[Entry]] = {}
                for entry in entries:
                    same.setdefault(constants[entry.at], []).append(entry)
                launches = [(some, _told(graph.constants, "told", row), "", True)
                            for row, some in same.items()]  # fmt: skip
            for some, values, by_row, one in launches:
                self._launch(graph, dtypes, whole, some, by_row, one, skip, values)

    def fold(
        self, groups: Groups, results: Sequence[Array], constants: Sequence[Any],
        rows: Array | None = None,
    ) -> None:  # fmt: skip
        """As `run`, with the row of constants `rows`; what all elements are folded to goes to
        `results`, by the numbers `constants`.
        """
        if not groups:
            raise ValueError("a fold of no elements has no value")
        blocks = [-(-e.size // CHUNK) for entries in groups.values() for e in entries]
        graph = self._graph(next(iter(groups))[0])
        assert graph.fold is not None
        partial = cupy.ndarray((sum(blocks),), graph.fold.term.dtype)  # kept until all is queued
        values = {"partial": partial.data.ptr, "ticket": tickets_of_stream().data.ptr,
                  "total": sum(blocks), **_told(graph.fold.constants, "last", constants),
                  **{f"result{k}": x.data.ptr for k, x in enumerate(results)}}  # fmt: skip
        by_row = ""
        if rows is not None:
            values["constants"], by_row = rows.data.ptr, rows.dtype.name
        first = 0
        for (dtypes, whole), entries in groups.items():
            graph = self._graph(dtypes)
            first = self._launch(
                graph, dtypes, whole, entries, by_row, True, None, values, first
            )  # fmt: skip

    def _graph(self, dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
        graph = self._graphs.get(dtypes)
        if graph is None:
            graph = self._graphs[dtypes] = self.graph_of(dtypes)
        return graph

    def _launch(
        self, graph: ListGraph, dtypes: Any, whole: bool, entries: list[Entry], by_row: str,
        one: bool, skip: Array | None, values: dict[str, Any], first: int = 0,
    ) -> int:  # fmt: skip
        """Launches for entries of one group; the number of the block that comes next."""
        kernel, table, capacity = _kernel(graph, dtypes, whole, by_row, one)
        for begin in range(0, len(entries), capacity):
            some = entries[begin : begin + capacity]
            args = np.zeros(1, table)
            row = args[0]
            sizes = [entry.size for entry in some]
            blocks = np.cumsum([0, *[-(-size // CHUNK) for size in sizes]])
            row["size"][: len(some)], row["start"][: len(some)] = sizes, blocks[:-1]
            row["count"], row["skip"] = len(some), 0 if skip is None else skip.data.ptr
            for k in range(len(dtypes)):
                row[f"list{k}"][: len(some)] = [entry.pointers[k] for entry in some]
            if by_row and not one:
                row["row"][: len(some)] = [entry.at for entry in some]
            for name, value in values.items():
                row[name] = value
            if graph.fold is not None:
                row["first"] = first
            kernel((int(blocks[-1]),), (THREADS,), args.tobytes())
            first += int(blocks[-1])
        return first


def _told(constants: Sequence[Traced], prefix: str, values: Sequence[Any]) -> dict[str, Any]:
    return {f"{prefix}{k}": value for k, value in enumerate(values[: len(constants)])}


def _kernel(graph: ListGraph, dtypes: Any, whole: bool, by_row: str, one: bool) -> Any:
    """A kernel, what its table looks like, and for how many arrays there is room in it."""
    fold = graph.fold
    form = signature(reached_from(graph.outputs), graph.outputs, values=True)
    ends = signature(reached_from(fold.results), fold.results, values=True) if fold else ""
    names = tuple(map(name_of, dtypes))
    how = fold.how if fold else ""
    key = graph.name, form, ends, how, tuple(graph.results), names, whole, by_row, one
    kernel = _kernels.get(key)
    if kernel is None:
        members, capacity = _members(graph, names, by_row, one)
        pack = 16 // max(d.itemsize for d in dtypes) if whole else 1
        code = list_source(graph, names, pack, members, by_row, one)
        raw = StructKernel(code, graph.name, OPTIONS)
        kernel = _kernels[key] = raw, _table(members), capacity
    return kernel


def _members(graph: ListGraph, names: Sequence[str], by_row: str, one: bool) -> tuple[Members, int]:
    """The members of the table, the wide ones first, and the length of its lists."""
    heads = [("const float*", "skip", 0)]
    if by_row:
        heads.append((f"const {STORED[by_row]}*", "constants", 0))
    ints = [("int", "count", 0)]
    values = [] if by_row else told(graph.constants, "told")
    if graph.fold:
        kind = STORED[graph.fold.term.dtype.name]
        heads += [(f"{kind}*", "partial", 0), ("unsigned*", "ticket", 0)]
        heads += [(f"{STORED[x.dtype.name]}*", f"result{k}", 0)
                  for k, x in enumerate(graph.fold.results)]  # fmt: skip
        ints += [("int", "first", 0), ("int", "total", 0)]
        values += told(graph.fold.constants, "last")
    used = 8 * (len(heads) + len(values)) + 4 * len(ints) + 8
    rows = bool(by_row) and not one
    per_array = 8 * len(names) + 8 + 4 + 4 * rows
    many = (MOST_BYTES - used) // per_array
    lists = [(f"{STORED[d]}*", f"list{k}", many) for k, d in enumerate(names)]
    lists.append(("long long", "size", many))
    ints += [("int", "start", many)] + [("int", "row", many)] * rows
    return _by_size(heads + lists + values + ints), many


def _by_size(members: list[tuple[str, str, int]]) -> Members:
    """Members so that none needs a gap before it."""
    return sorted(members, key=lambda m: -np.dtype(_numpy_of(m[0])).itemsize)


def _numpy_of(ctype: str) -> str:
    return "u8" if ctype.endswith("*") else NUMPY_OF[ctype]


def _table(members: Members) -> np.dtype[Any]:
    """The same as NumPy lays it, as long as C's."""
    parts: list[Any] = [(name, _numpy_of(c), many) if many else (name, _numpy_of(c))
                        for c, name, many in members]  # fmt: skip
    size = np.dtype(parts).itemsize
    return np.dtype([*parts, ("end", "u1", -size % 8)]) if size % 8 else np.dtype(parts)


class NumberKernels:
    """Kernels that compute constants of rows from numbers on the device: see `NumbersGraph`."""

    def __init__(self, graph: NumbersGraph) -> None:
        self.graph = graph

    def run(self, counts: Sequence[Sequence[Array]], settings: Sequence[Any], dtype: str) -> Array:
        """The constants, a row for each entry of the lists `counts`, or one; counts are changed.

        `settings` are Python's numbers, and arrays of one element on the device.
        """
        many = len(counts[0]) if counts else 1
        kept = len(counts)
        constants = cupy.ndarray((many, len(self.graph.results) - kept), dtype)
        for first, rows, names in _rows_alike(counts, many):
            kernel, table, capacity = self._kernel(names, settings, dtype)
            for begin in range(0, len(rows), capacity):
                some = rows[begin : begin + capacity]
                args = np.zeros(1, table)
                row = args[0]
                row["count"], row["first"] = len(some), first + begin
                row["constants"] = constants.data.ptr
                for k in range(kept):
                    row[f"count{k}"][: len(some)] = [pointers[k] for pointers in some]
                for k, x in enumerate(settings):
                    row[f"set{k}"] = x.data.ptr if isinstance(x, cupy.ndarray) else x
                grid = -(-len(some) // THREADS)
                kernel((grid,), (THREADS,), args.tobytes())
        return constants

    def _kernel(self, names: Sequence[str], settings: Sequence[Any], dtype: str) -> Any:
        kinds = tuple([x.dtype.name if isinstance(x, cupy.ndarray) else "" for x in settings])
        form = signature(reached_from(self.graph.results), self.graph.results, values=True)
        key = self.graph.name, form, tuple(names), kinds, dtype, "numbers"
        kernel = _kernels.get(key)
        if kernel is None:
            heads = [(f"{STORED[dtype]}*", "constants", 0)]
            heads += [(f"const {STORED[kind]}*" if kind else "double", f"set{k}", 0)
                      for k, kind in enumerate(kinds)]  # fmt: skip
            ints = [("int", "count", 0), ("int", "first", 0)]
            many = (MOST_BYTES - 8 * len(heads) - 16) // (8 * max(1, len(names)))
            lists = [(f"{STORED[d]}*", f"count{k}", many) for k, d in enumerate(names)]
            members = _by_size(heads + lists + ints)
            inputs = [f"*a.count{k}[row]" for k in range(len(names))]
            inputs += [f"{'*' * bool(kind)}a.set{k}" for k, kind in enumerate(kinds)]
            code = numbers_source(self.graph, inputs, names, dtype, members)
            raw = StructKernel(code, self.graph.name, OPTIONS)
            kernel = _kernels[key] = raw, _table(members), many
        return kernel


def _rows_alike(counts: Sequence[Sequence[Array]], many: int) -> Any:
    """Runs of rows whose numbers have the same dtypes: where they begin, their pointers, dtypes."""
    runs: list[tuple[int, list[tuple[int, ...]], tuple[str, ...]]] = []
    for at in range(many):
        names = tuple([name_of(column[at].dtype) for column in counts])
        pointers = tuple([column[at].data.ptr for column in counts])
        if not runs or runs[-1][2] != names:
            runs.append((at, [], names))
        runs[-1][1].append(pointers)
    return runs
