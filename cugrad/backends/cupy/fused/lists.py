"""Kernels over lists of arrays, a launch for as many arrays as its argument has room for.

A launch is told where the arrays begin and how long they are, in a table that is its argument: no
copy to the device goes before it. A block computes a part of one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import cupy
import numpy as np

from ...traced.arrays import Trace, Traced, reached_from
from ...traced.gathered import (
    EACH,
    Entry,
    Groups,
    launches_told,
    room_for,
    room_for_numbers,
    rows_alike,
    sorted_out,
)
from ...traced.lists import Folding, ListGraph, MakeListGraph, NumbersGraph
from ..launches.starting import StructKernel
from .expressions import STORED, name_of, signature
from .launch import OPTIONS
from .list_source import CHUNK, Members, list_source, numbers_source, told
from .reductions import tickets_of_stream
from .source import THREADS

__all__ = ["ListKernels", "NumberKernels"]

Array = Any  # cupy.ndarray

NUMPY_OF = {"long long": "i8", "int": "i4", "float": "f4", "double": "f8", "bool": "?"}

_kernels: dict[Any, tuple[StructKernel, np.dtype[Any], int]] = {}


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
                name = constants.dtype.name
                self._launch(graph, dtypes, whole, entries, name, one, skip, values)
                continue
            for some, row in launches_told(graph, len(dtypes), entries, constants):
                by_row, values = (EACH, constants) if row is EACH else ("", row)
                if not by_row:
                    values = _told(graph.constants, "told", row)
                self._launch(graph, dtypes, whole, some, by_row, True, skip, values)

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

    def fold_each(self, groups: Groups, results: Array) -> None:
        """What the elements of each array are folded to goes to its place of `results`: in as many
        launches as parts of the longest array have to be folded again.
        """
        kernels: ListKernels = self
        size = results.itemsize
        while groups:
            counts = {e.at: -(-e.size // CHUNK) for some in groups.values() for e in some}
            long = [at for at, count in counts.items() if count > 1]
            partial = cupy.ndarray((sum([counts[at] for at in long]),), results.dtype)
            ends, begin = dict[int, int](), partial.data.ptr
            for at, count in counts.items():
                ends[at] = begin if count > 1 else results.data.ptr + at * size
                begin += count * size if count > 1 else 0
            for (dtypes, whole), entries in groups.items():
                kernels._launch(
                    kernels._graph(dtypes), dtypes, whole, entries, "", True, None, {}, parts=ends
                )
            fold = kernels._graph(next(iter(groups))[0]).fold
            assert fold is not None
            again = [Entry((ends[at],), counts[at], at, (partial,)) for at in long]
            groups = {((results.dtype,), False): again} if again else {}
            kernels = _of_parts(fold.how)

    def _graph(self, dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
        graph = self._graphs.get(dtypes)
        if graph is None:
            graph = self._graphs[dtypes] = self.graph_of(dtypes)
        return graph

    def _launch(
        self, graph: ListGraph, dtypes: Any, whole: bool, entries: list[Entry], by_row: str,
        one: bool, skip: Array | None, values: Any, first: int = 0,
        parts: Mapping[int, int] | None = None,
    ) -> int:  # fmt: skip
        """Launches for entries of one group; the number of the block that comes next. `values` are
        members of the table, by name, or, for EACH, constants by the place of their array; `parts`
        are where the folds of an array's blocks go, by its place.
        """
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
            if by_row == EACH:
                for k in range(len(graph.constants)):
                    row[f"told{k}"][: len(some)] = [values[entry.at][k] for entry in some]
            else:
                if by_row and not one:
                    row["row"][: len(some)] = [entry.at for entry in some]
                for name, value in values.items():
                    row[name] = value
            if parts is not None:
                row["part"][: len(some)] = [parts[entry.at] for entry in some]
            elif graph.fold is not None:
                row["first"] = first
            kernel((int(blocks[-1]),), (THREADS,), args.tobytes())
            first += int(blocks[-1])
        return first


@cache
def _of_parts(how: str) -> ListKernels:
    """Kernels that fold what blocks have left of each array."""

    def graph(dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
        return ListGraph("fold_parts", {}, (), Folding(Trace().input(0, dtypes[0]), how))

    return ListKernels(graph)


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
    on_device = by_row not in ("", EACH)
    if on_device:
        heads.append((f"const {STORED[by_row]}*", "constants", 0))
    ints = [("int", "count", 0)]
    values = [] if by_row else told(graph.constants, "told")
    many = room_for(graph, len(names), by_row, one)
    lists = [(f"{STORED[d]}*", f"list{k}", many) for k, d in enumerate(names)]
    if graph.fold and graph.folds_each:
        lists.append((f"{STORED[graph.fold.term.dtype.name]}*", "part", many))
    elif graph.fold:
        kind = STORED[graph.fold.term.dtype.name]
        heads += [(f"{kind}*", "partial", 0), ("unsigned*", "ticket", 0)]
        heads += [(f"{STORED[x.dtype.name]}*", f"result{k}", 0)
                  for k, x in enumerate(graph.fold.results)]  # fmt: skip
        ints += [("int", "first", 0), ("int", "total", 0)]
        values += told(graph.fold.constants, "last")
    rows = on_device and not one
    if by_row == EACH:
        lists += [(c, name, many) for c, name, _ in told(graph.constants, "told")]
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
        for first, rows, names in rows_alike(counts, many):
            kernel, table, capacity = self._kernel(names, settings, dtype)
            for begin in range(0, len(rows), capacity):
                some = rows[begin : begin + capacity]
                args = np.zeros(1, table)
                row = args[0]
                row["count"], row["first"] = len(some), first + begin
                row["constants"] = constants.data.ptr
                for k in range(kept):
                    row[f"count{k}"][: len(some)] = [arrays[k].data.ptr for arrays in some]
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
            many = room_for_numbers(len(names), len(kinds))
            lists = [(f"{STORED[d]}*", f"count{k}", many) for k, d in enumerate(names)]
            members = _by_size(heads + lists + ints)
            inputs = [f"*a.count{k}[row]" for k in range(len(names))]
            inputs += [f"{'*' * bool(kind)}a.set{k}" for k, kind in enumerate(kinds)]
            code = numbers_source(self.graph, inputs, names, dtype, members)
            raw = StructKernel(code, self.graph.name, OPTIONS)
            kernel = _kernels[key] = raw, _table(members), many
        return kernel
