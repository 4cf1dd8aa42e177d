"""Traced graphs as kernels: what CUDA has kernels made of is computed by NumPy, at their cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..traced.arrays import Traced, Untraceable
from ..traced.evaluated import evaluated
from ..traced.gathered import (
    EACH,
    Entry,
    Groups,
    launches_told,
    room_for,
    room_for_numbers,
    rows_alike,
    sorted_out,
)
from ..traced.lists import ListGraph, MakeListGraph, NumbersGraph
from ..traced.rows import demand_floats, demand_work, summed_together
from .array import run
from .namespace import HOST

__all__ = ["SimulatedLists", "SimulatedNumbers", "graph_function", "table_function"]

Array = Any  # of the device
Host = np.ndarray[Any, Any]


def graph_function(
    kind: Any, name: str, results: Sequence[Traced], arrays: Sequence[Array],
    targets: Sequence[tuple[int, ...]] | None,
) -> Callable[[Sequence[Array]], list[Array]]:  # fmt: skip
    """See `CupyBackend.graph_function`, which declines the same."""
    demand_floats(arrays, results)
    demand_work(results, targets)
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    if 0 in shape:
        raise Untraceable("it has no elements")
    whole = [shape] * len(results)
    shapes = whole if targets is None or not summed_together(shape, targets) else targets

    def function(*hosts: Host) -> tuple[Host, ...]:
        values = evaluated(HOST, results, hosts)
        return tuple([_fitted(v, shape, to, x.dtype) for v, to, x in zip(values, shapes, results)])

    return lambda arrays: list(run(kind, name, function, tuple(arrays), {}))


def table_function(
    kind: Any, name: str, element: Traced, shape: Sequence[int]
) -> Callable[[], Array]:
    """See `CupyBackend.table_function`."""

    def function() -> Host:
        places = np.indices(shape, np.float64, sparse=True)
        (value,) = evaluated(HOST, [element], places)
        return np.array(np.broadcast_to(value, shape), element.dtype)

    return lambda: run(kind, name, function, (), {})


def _fitted(value: Any, shape: tuple[int, ...], target: tuple[int, ...], dtype: Any) -> Host:
    """An array of its own, of a value of each element, or of their sums."""
    host = np.broadcast_to(value, shape)
    if target != shape:
        missing = len(shape) - len(target)
        dims = [i for i, n in enumerate(shape) if i < missing or target[i - missing] != n]
        host = host.sum(tuple(dims), keepdims=True).reshape(target)
    return np.array(host, dtype, order="K")


class _LaunchesOf:
    """What launches change in place: device arrays, known by what holds them."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def _launch(
        self, name: str, reads: Sequence[Array], writes: Sequence[Array], work: Callable[[], Any]
    ) -> None:
        machine = self._kind.machine
        with machine.lock, np.errstate(all="ignore"):
            machine.launch(machine.current(), name, reads, writes)
            work()
            machine.finish(machine.current(), name, reads, writes)


class SimulatedLists(_LaunchesOf):
    """See `fused.lists.ListKernels`, which takes, and launches, the same."""

    def __init__(self, kind: Any, graph_of: MakeListGraph) -> None:
        super().__init__(kind)
        self.graph_of = graph_of

    def sorted_out(self, columns: Sequence[Sequence[Array]], written: Sequence[int]) -> Any:
        """`(groups, left)`: what `run` takes, and the places of arrays that it cannot take."""
        return sorted_out(columns, written)

    def run(self, groups: Groups, constants: Any, skip: Array | None = None) -> None:
        """Changes the arrays of all groups in place; nothing where the number in `skip` is not
        0.
        """
        on_device = type(constants) is self._kind
        for (dtypes, _), entries in groups.items():
            graph = self.graph_of(dtypes)
            if on_device:
                launches = [(entries, None)]
            else:
                launches = [*launches_told(graph, len(dtypes), entries, constants)]
            one = not on_device or constants.shape[0] == 1
            for some, told in launches:
                by_row = EACH if told is EACH else on_device
                room = room_for(graph, len(dtypes), by_row, one)
                rows = constants if on_device or told is EACH else told
                for begin in range(0, len(some), room):
                    part = some[begin : begin + room]
                    self._change(graph, dtypes, part, rows, skip, each=told is EACH)

    def _change(
        self, graph: ListGraph, dtypes: Any, entries: Sequence[Entry], rows: Any,
        skip: Array | None = None, terms: list[Host] | None = None, each: bool = False,
    ) -> None:  # fmt: skip
        """One launch, of arrays of one group; what is to be folded goes to `terms`. `rows` are
        constants on the device, or those that it is told, for all arrays or for `each`.
        """
        on_device = type(rows) is self._kind
        told = [*([rows] if on_device else []), *([] if skip is None else [skip])]
        reads = [e.arrays[k] for k in sorted(graph.lists_read()) for e in entries]
        writes = [e.arrays[k] for k in graph.results for e in entries]

        def work() -> None:
            if skip is not None and skip._host != 0:
                return
            for entry in entries:
                row = rows[entry.at] if each else rows
                if on_device:
                    row = rows._host[entry.at if rows.shape[0] > 1 else 0]
                numbers = {x.name: value for x, value in zip(graph.constants, row)}
                flat = [_flat(x._host, dtype) for x, dtype in zip(entry.arrays, dtypes)]
                values = evaluated(HOST, graph.outputs, flat, numbers)
                for k, value in zip(graph.results, values):
                    flat[k][...] = value
                if terms is not None and graph.fold is not None:
                    terms.append(np.broadcast_to(values[-1], flat[0].shape))

        self._launch(graph.name, [*reads, *told], writes, work)

    def fold(
        self, groups: Groups, results: Sequence[Array], constants: Sequence[Any],
        rows: Array | None = None,
    ) -> None:  # fmt: skip
        """As `run`, with the row of constants `rows`; what all elements are folded to goes to
        `results`, by the numbers `constants`.
        """
        if not groups:
            raise ValueError("a fold of no elements has no value")
        terms: list[Host] = []
        for (dtypes, _), entries in groups.items():
            graph = self.graph_of(dtypes)
            room = room_for(graph, len(dtypes), rows is not None, True)
            for begin in range(0, len(entries), room):
                told = () if rows is None else rows
                self._change(graph, dtypes, entries[begin : begin + room], told, terms=terms)
        fold = graph.fold
        assert fold is not None
        with np.errstate(all="ignore"):
            parts = [t.max() if fold.how == "maximum" else t.sum(dtype=t.dtype) for t in terms]
            total = max_of(parts) if fold.how == "maximum" else np.sum(parts, dtype=parts[0].dtype)
            numbers = {x.name: value for x, value in zip(fold.constants, constants)}
            values = evaluated(HOST, fold.results, [total], numbers)
        with self._kind.machine.lock:  # in the launch that comes last
            machine = self._kind.machine
            machine.touch(machine.current(), graph.name, (), results)
            for x, value in zip(results, values):
                x._host[...] = value

    def fold_each(self, groups: Groups, results: Array) -> None:
        """What the elements of each array are folded to goes to its place of `results`."""
        for (dtypes, _), entries in groups.items():
            graph = self.graph_of(dtypes)
            assert graph.fold is not None
            room = room_for(graph, len(dtypes), False, True)
            for begin in range(0, len(entries), room):
                terms, part = list[Host](), entries[begin : begin + room]
                self._change(graph, dtypes, part, (), terms=terms)
                with self._kind.machine.lock:
                    machine = self._kind.machine
                    machine.touch(machine.current(), graph.name, (), [results])
                    for entry, t in zip(part, terms, strict=True):
                        whole = t.max() if graph.fold.how == "maximum" else t.sum(dtype=t.dtype)
                        results._host[entry.at] = whole


def max_of(parts: Sequence[Any]) -> Any:
    """The largest, and nan where there is one."""
    return np.max(np.asarray(parts))


def _flat(host: Host, dtype: np.dtype[Any]) -> Host:
    """The elements in the order of memory, as they lie there; pairs of reals of complex ones."""
    axes = sorted(range(host.ndim), key=lambda i: -host.strides[i])
    flat = host.transpose(axes).reshape(-1)
    return flat if flat.dtype == dtype else flat.view(dtype)


class SimulatedNumbers(_LaunchesOf):
    """See `fused.lists.NumberKernels`."""

    def __init__(self, kind: Any, xp: Any, graph: NumbersGraph) -> None:
        super().__init__(kind)
        self.xp, self.graph = xp, graph

    def run(self, counts: Sequence[Sequence[Array]], settings: Sequence[Any], dtype: str) -> Array:
        """The constants, a row for each entry of the lists `counts`, or one; counts are changed."""
        many, kept = len(counts[0]) if counts else 1, len(counts)
        results = self.graph.results
        constants = self.xp.empty((many, len(results) - kept), dtype)
        room = room_for_numbers(kept, len(settings))
        told = [x for x in settings if type(x) is self._kind]
        last = [x._host if type(x) is self._kind else x for x in settings]
        for first, rows, _ in rows_alike(counts, many):
            for begin in range(0, len(rows), room):
                some = rows[begin : begin + room]

                def work(some: Any = some, at: int = first + begin) -> None:
                    for row, arrays in enumerate(some, at):
                        values = evaluated(HOST, results, [*[x._host for x in arrays], *last])
                        for x, value in zip(arrays, values):
                            x._host[...] = value
                        constants._host[row] = [*map(np.squeeze, values[kept:])]

                numbers = [x for arrays in some for x in arrays]
                self._launch(self.graph.name, [*numbers, *told], [*numbers, constants], work)
        return constants
