"""Elementwise kernels that also add up: gradients of operands that were broadcast, and column sums.

The dims that are summed come all before, or all behind, those that are kept. A block of 256 threads
adds up a part of what is summed, 32 neighbours at a time, and where there are several parts the
block that comes last adds up their sums, in their order: the same bits in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from textwrap import indent
from typing import Any, NamedTuple

import cupy
import numpy as np

from ....runtime.kept import of_thread
from ...traced.arrays import Traced
from ...traced.rows import summed_together
from ..launches.starting import StructKernel, start
from ..launches.straight import Function, Start, launches_of
from .expressions import STORED, device_functions, signature, statements
from .launch import BLOCK, OPTIONS, Argument, Graph, New, values_of
from .layouts import Layout
from .source import (
    THREADS,
    by_size,
    coordinates,
    element,
    fields,
    headers_of,
    offsets,
    stored,
)

__all__ = ["Reduction", "ReductionPlan", "of_capture", "reduction_to", "tickets_of_stream"]

Array = Any  # cupy.ndarray

BLOCKS = 1024  # that are enough for a GPU
STEPS = 8  # that a thread should have to do at least
LANES = 32
PER_THREAD = 2  # cudaStreamPerThread

_kernels: dict[Any, StructKernel] = {}
_tickets: dict[Any, Array] = {}


class Reduction(NamedTuple):
    """What is summed of elements in rows and columns: the rows, where `leading`; or each row."""

    rows: int
    columns: int
    leading: bool

    @property
    def kept(self) -> int:
        return self.columns if self.leading else self.rows

    @property
    def tiles(self) -> int:
        """Blocks side by side: of 32 columns, or of 8 rows."""
        return -(-self.kept // (LANES if self.leading else THREADS // LANES))

    @property
    def parts(self) -> int:
        """Into how many parts the sums are cut, so that there are blocks enough."""
        along = THREADS // LANES if self.leading else LANES
        summed = self.rows if self.leading else self.columns
        return max(1, min(-(-summed // (along * STEPS)), BLOCKS // self.tiles))


def reduction_to(shape: tuple[int, ...], targets: Sequence[tuple[int, ...]]) -> Reduction | None:
    """How the elements of `shape` are summed to those of `targets` that are less; None where one
    kernel does not do so.
    """
    ends = summed_together(shape, targets)
    return None if ends is None else Reduction(*ends)


class ReductionPlan:
    """A kernel that writes some of its results and adds up others, and all that a launch needs."""

    __slots__ = ("new", "kernel", "grid", "told", "partial")

    def __init__(
        self, graph: Graph, layout: Layout, reduction: Reduction, summed: Sequence[bool],
        new: Sequence[New], mean: bool = False,
    ) -> None:  # fmt: skip
        self.new = new
        sums = [_accumulator(x) for x, is_sum in zip(graph.results, summed) if is_sum]
        members = _members(graph, layout, sums)
        form = signature(graph.nodes, graph.results, values=not graph.numbers)
        key = (graph.name, form, layout.kind, graph.inputs, graph.outputs, reduction.leading,
               tuple(summed), mean)  # fmt: skip
        kernel = _kernels.get(key)
        if kernel is None:
            code = _source(graph, layout, reduction.leading, summed, members, mean)
            kernel = _kernels[key] = StructKernel(code, graph.name, OPTIONS)
        self.kernel = kernel
        self.grid = (reduction.tiles, reduction.parts)
        length = reduction.rows if reduction.leading else reduction.columns
        values = values_of(layout, graph)
        values |= {"rows": reduction.rows, "columns": reduction.columns}
        values["part"] = -(-length // reduction.parts)
        self.told = Argument(members, values)
        parts = reduction.parts, reduction.kept  # of sums that the last block adds up
        self.partial = [New(parts, np.dtype(k), None) if parts[0] > 1 else None for k in sums]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """New arrays with what the kernel computes of `arrays`."""
        results = [new.make() for new in self.new]
        partial = [None if new is None else new.make() for new in self.partial]
        several = [*arrays, *results, *partial, tickets_of_stream() if any(self.partial) else None]
        read = range(len(arrays))
        start(self.kernel, self.grid, BLOCK, several, self.told.head, self.told.tail, read)
        return results

    def straight(
        self, parameters: Sequence[str], arrays: Sequence[str], answer: str, opening: str = "pass"
    ) -> Function:
        """As that of a `KernelPlan`."""
        new = {f"y{k}": x.form() for k, x in enumerate(self.new)}
        begins = [f"at_{x}" for x in (*arrays, *new)]
        for k, x in enumerate(self.partial):
            begins.append("0" if x is None else f"at_partial{k}")
            if x is not None:
                new[f"partial{k}"] = x.form()
        begins.append("tickets().data.ptr" if any(self.partial) else "0")
        starts = [Start(self.kernel, self.grid, BLOCK, begins, self.told.tail)]
        return launches_of(
            parameters, arrays, new, starts, answer, 1, opening, tickets=tickets_of_stream
        )


class _OfCapture(threading.local):
    """Tickets of the graph that this thread captures, by stream."""

    tickets: dict[Any, Array] | None = None


of_capture = of_thread(_OfCapture())


def tickets_of_stream() -> Array:
    """Zeros, to which every kernel puts them back; those of a stream run one after another.

    A graph has its own, and another for each stream that is captured: it may be replayed on any
    stream, beside what its own does by then, and what was forked runs side by side.
    """
    stream = cupy.cuda.get_current_stream().ptr
    if stream == PER_THREAD:  # another stream in each thread
        stream = -threading.get_ident()
    key = cupy.cuda.runtime.getDevice(), stream
    kept = of_capture.tickets
    if kept is None:
        kept = _tickets
    tickets = kept.get(key)
    if tickets is None:
        tickets = kept[key] = cupy.zeros(BLOCKS, np.uint32)
    return tickets


def _accumulator(node: Traced) -> str:
    return "float64" if node.dtype.name == "float64" else "float32"


def _members(graph: Graph, layout: Layout, sums: Sequence[str]) -> list[tuple[str, str, str]]:
    index = ("long long", "q") if layout.wide else ("int", "i")
    members = fields(layout, graph.inputs, graph.outputs, graph.numbers)
    first = [m for m in members if m[2] == "P"]
    first += [(f"{STORED[kind]}*", f"partial{k}", "P") for k, kind in enumerate(sums)]
    first.append(("unsigned*", "tickets", "P"))
    counts = [(index[0], name, index[1]) for name in ("rows", "columns", "part")]
    return by_size([*first, *[m for m in members if m[2] != "P"], *counts])


KERNEL = """\
struct Operands_{name} {{
{members}
}};
extern "C" __global__ void __launch_bounds__({threads}) {name}(const Operands_{name} a)
{{
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const {index} kept = ({index})blockIdx.x * {tile} + {across};
    const {index} begin = ({index})blockIdx.y * a.part;
    const {index} end = begin + a.part < a.{summed} ? begin + a.part : a.{summed};
    const bool writes = {first} == 0 && kept < a.{keeps};
    __shared__ bool last;
{declare}
    if (kept < a.{keeps})
        for ({index} place = begin + {along}; place < end; place += {step}) {{
{body}
        }}
{combine}
    if (gridDim.y == 1) {{
{write}
        return;
    }}
{part}
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(a.tickets + blockIdx.x, 1u) == gridDim.y - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
{again}
{combine}
{write}
    if (threadIdx.x == 0) a.tickets[blockIdx.x] = 0;
}}
"""
COMBINE_ROWS = """\
sums{k}[line][lane] = s{k};
__syncthreads();
if (line == 0)
    for (int j = 1; j < 8; ++j) s{k} += sums{k}[j][lane];"""
COMBINE_LANES = "for (int d = 16; d > 0; d >>= 1) s{k} += __shfl_down_sync(0xffffffffu, s{k}, d);"
AGAIN = """\
s{k} = 0;
if (kept < a.{keeps})
    for (int j = {along}; j < (int)gridDim.y; j += {step})
        s{k} += ((const volatile {kind}*)a.partial{k})[j * a.{keeps} + kept];"""


def _source(
    graph: Graph, layout: Layout, leading: bool, summed: Sequence[bool], members: Any,
    mean: bool = False,
) -> str:  # fmt: skip
    """The kernel; with `mean` sums are divided by how many numbers they are of."""
    index = "long long" if layout.wide else "int"
    inputs, outputs = graph.inputs, graph.outputs
    named = {x.name: f"a.number{k}" for k, x in enumerate(graph.numbers)}
    read = {k: element("e", k, dtype) for k, dtype in enumerate(inputs)}
    lines, names = statements(graph.nodes, read, named or None)
    number = "place * a.columns + kept" if leading else "kept * a.columns + place"
    body = [
        *coordinates(layout, number, index),
        *offsets(layout, len(inputs), len(outputs), index),
        *[f"const {STORED[d]} p{k} = a.in{k}[at{k}];" for k, d in enumerate(inputs)], *lines,
    ]  # fmt: skip
    sums: list[tuple[int, str, str]] = []  # which output, in what it adds up, its dtype
    for k, (node, dtype) in enumerate(zip(graph.results, outputs, strict=True)):
        if summed[k]:
            body.append(f"s{len(sums)} += {names[node.name]};")
            sums.append((k, STORED[_accumulator(node)], dtype))
        else:
            place = f"a.out{k}[at{len(inputs) + k}]"
            body.append(f"{place} = {stored(names[node.name], node, dtype)};")
    shape = {
        "keeps": "columns" if leading else "rows", "along": "line" if leading else "lane",
        "step": 8 if leading else 32,
    }  # fmt: skip
    return (headers_of((*inputs, *outputs)) + device_functions(body)) + KERNEL.format(
        name=graph.name, threads=THREADS, index=index, tile=32 if leading else 8,
        across="lane" if leading else "line", first="line" if leading else "lane",
        summed="rows" if leading else "columns", **shape,
        members="\n".join(f"    {ctype} {member};" for ctype, member, _ in members),
        declare=_each(sums, ("__shared__ {kind} sums{k}[8][33];\n" if leading else "")
                      + "{kind} s{k} = 0;", 4),
        body=indent("\n".join(body), " " * 12),
        combine=_each(sums, COMBINE_ROWS if leading else COMBINE_LANES, 4),
        write=_each(sums, "if (writes) a.out{out}[kept] = {value};", 4,
                    divided=f" / a.{'rows' if leading else 'columns'}" * mean),
        part=_each(sums, "if (writes) a.partial{k}[blockIdx.y * a.{keeps} + kept] = s{k};", 4,
                   **shape),
        again=_each(sums, AGAIN, 4, **shape),
    )  # fmt: skip


def _each(sums: Any, template: str, depth: int, **names: Any) -> str:
    """A template filled for each sum, which is `divided` where that is said."""
    divided = names.get("divided", "")
    parts = [
        template.format(
            k=k, out=out, kind=kind, value=_rounded(f"s{k}{divided}", dtype), **names
        )  # fmt: skip
        for k, (out, kind, dtype) in enumerate(sums)
    ]
    return indent("\n".join(parts), " " * depth)


def _rounded(name: str, dtype: str) -> str:
    rounding = {"float16": "__float2half_rn", "bfloat16": "__float2bfloat16_rn"}
    return f"{rounding.get(dtype, '(' + STORED[dtype] + ')')}({name})"
