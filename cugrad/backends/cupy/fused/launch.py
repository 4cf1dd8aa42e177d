"""Compiles generated kernels, once each, and starts them with all arguments packed into one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from ...traced.arrays import Traced, reached_from
from ..arrays import form_of, new_array
from ..launches.starting import StructKernel, start
from ..launches.straight import Function, Start, launches_of
from .expressions import signature, value_of
from .halves import Halves
from .layouts import Layout, Operand, layout_of, needs_alignment
from .source import THREADS, fields, kernel_source, struct_format

__all__ = [
    "BLOCK", "OPTIONS", "Graph", "KernelPlan", "New", "Argument", "dense_strides", "graph_of",
    "kernel_of", "values_of",
]  # fmt: skip

Array = Any  # cupy.ndarray

# One multiplication and one addition are two roundings, as they are where each is a kernel.
OPTIONS = ("--fmad=false",)
BLOCK = (THREADS,)

_kernels: dict[Any, StructKernel] = {}


class Graph(NamedTuple):
    """What a kernel computes: `results` of the inputs that `nodes` name by their index.

    `inputs` and `outputs` are dtypes by name; `numbers` are those that it is told at each launch,
    where another value shall not be another kernel.
    """

    name: str
    nodes: Sequence[Traced]
    results: Sequence[Traced]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: tuple[Traced, ...]


def graph_of(name: str, results: Sequence[Traced], inputs: Sequence[str], told: bool) -> Graph:
    """The graph of results in their own dtypes; `told` is whether numbers are arguments."""
    nodes = reached_from(results)
    numbers = tuple([x for x in nodes if x.function == "number"]) if told else ()
    outputs = tuple([x.dtype.name for x in results])
    return Graph(name, nodes, tuple(results), tuple(inputs), outputs, numbers)


def kernel_of(graph: Graph, layout: Layout) -> StructKernel:
    """The kernel of a graph for operands that lie so: one for all graphs of this form."""
    form = signature(graph.nodes, graph.results, values=not graph.numbers)
    key = graph.name, form, layout.kind, graph.inputs, graph.outputs
    kernel = _kernels.get(key)
    if kernel is None:
        code = kernel_source(
            graph.name, graph.nodes, graph.results, layout, graph.inputs, graph.outputs,
            graph.numbers,
        )  # fmt: skip
        kernel = _kernels[key] = StructKernel(code, graph.name, OPTIONS)
    return kernel


class New(NamedTuple):
    """An array to be made: strides are None where it lies in the order of its dims."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None

    def form(self) -> Any:
        """What a function in a straight line is told of it: see `launches_of`."""
        return form_of(self.shape, self.dtype, self.strides)

    def make(self) -> Array:
        return new_array(self.form())


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Those of an array that lies in the order of its dims."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


class Argument:
    """A kernel's one argument: `head` packs the addresses, which come first, `tail` is the rest."""

    __slots__ = ("head", "tail")

    def __init__(self, members: Sequence[tuple[str, str, str]], values: dict[str, Any]) -> None:
        count = sum(letter == "P" for _, _, letter in members)
        rest = [values[name] for _, name, letter in members if letter != "P"]
        whole = struct.pack(struct_format(members), *[0] * count, *rest)
        self.head = struct.Struct(f"@{count}P").pack
        self.tail = whole[struct.calcsize(f"@{count}P") :]


class KernelPlan:
    """A kernel for operands of certain shapes, strides and dtypes, and all that a launch needs."""

    __slots__ = ("graph", "operands", "new", "kernel", "grid", "told", "aligned", "widest", "slow",
                 "halves")  # fmt: skip

    def __init__(
        self, graph: Graph, operands: Sequence[Operand], new: Sequence[New], layout: Layout,
        halves: Halves | None = None,
    ) -> None:  # fmt: skip
        self.halves = halves  # that the new arrays are
        self.graph, self.operands, self.new = graph, operands, new
        self.kernel = kernel_of(graph, layout)
        self.grid = (-(-layout.threads // THREADS),)
        members = fields(layout, graph.inputs, graph.outputs, graph.numbers)
        self.told = Argument(members, values_of(layout, graph))
        sizes = [x.itemsize for x in operands[:-1]] + [x.dtype.itemsize for x in new]
        modes = layout.modes[:-1] + layout.modes[-1] * len(new)
        self.aligned = needs_alignment(layout._replace(modes=modes), sizes)
        self.widest = max(self.aligned)
        self.slow: KernelPlan | None = None  # for arrays that begin at other addresses

    def run(self, arrays: Sequence[Array], home: Array | None = None) -> list[Array]:
        """New arrays with what the kernel computes of `arrays`; or `home`, where it may lie there:
        kernels read each element before they write it.
        """
        if home is not None and self.may_write(home, arrays):
            results = [home]
        elif self.halves is not None:
            results = self.halves.make()
        else:
            results = [new.make() for new in self.new]
        self.start([*arrays, *results])
        return results

    def change(self, *arrays: Array) -> None:
        """Writes what the kernel computes of `arrays` over the first, which lies as a new one."""
        self.start([*arrays, arrays[0]])

    def start(self, arrays: Sequence[Array]) -> None:
        plan = self
        if any(x.data.ptr % multiple for x, multiple in zip(arrays, self.aligned)):
            plan = self.unaligned()
        read = range(len(arrays) - len(self.new))
        start(plan.kernel, plan.grid, BLOCK, arrays, plan.told.head, plan.told.tail, read)

    def straight(
        self, parameters: Sequence[str], arrays: Sequence[str], answer: str, opening: str = "pass"
    ) -> Function:
        """`run` as a function of `parameters`, among which `arrays` are, which answers with the
        new ones, by the names y0, y1, ...; see `launches_of`.
        """
        names = [f"y{k}" for k, _ in enumerate(self.new)]
        new: dict[str, Any] = {name: x.form() for name, x in zip(names, self.new)}
        if self.halves is not None:
            new = {", ".join(names): self.halves.make}
        begins = [f"at_{x}" for x in (*arrays, *names)]
        starts = [Start(self.kernel, self.grid, BLOCK, begins, self.told.tail)]
        return launches_of(parameters, arrays, new, starts, answer, self.widest, opening)

    def straight_change(
        self, parameters: Sequence[str], arrays: Sequence[str], home: str
    ) -> Function:
        """The same in the place of `home`, which lies as a new one would: it is answered. None
        where another one shares memory with it, and does not lie as it does.
        """
        result = self.operands[-1]
        apart = [_overlap(f"at_{x} - at_{home}", operand, result)
                 for x, operand in zip(arrays, self.operands) if x != home]  # fmt: skip
        begins = [f"at_{x}" for x in (*arrays, home)]
        starts = [Start(self.kernel, self.grid, BLOCK, begins, self.told.tail)]
        return launches_of(
            parameters, list(dict.fromkeys([*arrays, home])), {}, starts, home, self.widest,
            unless=" or ".join(apart),
        )  # fmt: skip

    def may_write(self, home: Array, arrays: Sequence[Array]) -> bool:
        """Whether the one result has the form of `home`, and no operand shares memory with it but
        those that lie as it does.
        """
        new = self.new[0]
        strides = new.strides or dense_strides(new.shape, new.dtype.itemsize)
        if len(self.new) > 1 or home.shape != new.shape or home.dtype != new.dtype:
            return False
        return home.strides == strides and all(are_apart(x, home) for x in arrays)

    def unaligned(self) -> KernelPlan:
        if self.slow is None:
            layout = layout_of(self.new[0].shape, self.operands, packing=False)
            assert layout is not None
            self.slow = KernelPlan(self.graph, self.operands, self.new, layout)
        return self.slow


def are_apart(x: Array, home: Array) -> bool:
    """Whether an array shares no memory with another, or has the same elements in its places."""
    same = (x.data.ptr, x.shape, x.strides) == (home.data.ptr, home.shape, home.strides)
    return same or not cupy.may_share_memory(x, home)


def _overlap(way: str, operand: Operand, home: Operand) -> str:
    """Whether an operand that begins `way` bytes behind another shares memory with it, and is not
    the same elements in the same places; as text.
    """
    (low, high), (first, last) = _bounds(operand), _bounds(home)
    overlaps = f"{first - high} < {way} < {last - low}"
    alike = (operand.shape, operand.strides) == (home.shape, home.strides)
    return f"{way} and {overlaps}" if alike else overlaps


def _bounds(x: Operand) -> tuple[int, int]:
    """Where an operand's memory begins and ends, in bytes from its first element on."""
    reach = [step * (n - 1) for n, step in zip(x.shape, x.strides)]
    return sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + x.itemsize


def values_of(layout: Layout, graph: Graph) -> dict[str, Any]:
    """What the members of a kernel's argument are that are no pointers, by name."""
    count = len(graph.inputs)
    values: dict[str, Any] = {f"size{k}": n for k, n in enumerate(layout.shape)}
    for operand in range(count + len(graph.outputs)):
        for k, step in enumerate(layout.strides[min(operand, count)]):
            values[f"step{operand}_{k}"] = step
    return values | {f"number{k}": value_of(x) for k, x in enumerate(graph.numbers)}
