"""The text of kernels over lists of arrays: which array is a block's, and what its threads do."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Any

from ...traced.arrays import Traced, reached_from
from ...traced.gathered import EACH
from ...traced.lists import Folding, ListGraph, NumbersGraph
from .expressions import ANY, COMPUTED, STORED, checked, device_functions, number_format, statements
from .source import C_NUMBERS, PACK, THREADS, TO_FLOAT, headers_of, stored

__all__ = ["CHUNK", "list_source", "numbers_source"]

CHUNK = 4096  # elements of a block

Members = Sequence[tuple[str, str, int]]  # (C type, name, how many, 0 for one that is no array)

KERNEL = """\
struct Table_{name} {{
{members}
}};
extern "C" __global__ void __launch_bounds__({threads}) {name}(const Table_{name} a)
{{
    if (a.skip && *a.skip != 0) return;
    int array = 0;
    for (int end = a.count; end - array > 1;) {{
        const int middle = (array + end) / 2;
        if (a.start[middle] <= (int)blockIdx.x) array = middle;
        else end = middle;
    }}
    const long long begin = (long long)((int)blockIdx.x - a.start[array]) * {chunk};
    const long long left = a.size[array] - begin;
    const int size = left < {chunk} ? (int)left : {chunk};
{places}
    for (int at = threadIdx.x * {pack}; at < size; at += {threads} * {pack}) {{
{body}
    }}
{fold}
}}
"""
LOAD = """\
Pack<{ctype}, {pack}> p{k} = {{}};
if (at + {pack} <= size) p{k} = *(const Pack<{ctype}, {pack}>*)(list{k} + at);
else
    for (int k = 0; k < {pack}; ++k)
        if (at + k < size) p{k}.at[k] = list{k}[at + k];"""
SAVE = """\
if (at + {pack} <= size) *(Pack<{ctype}, {pack}>*)(list{k} + at) = q{k};
else
    for (int k = 0; k < {pack}; ++k)
        if (at + k < size) list{k}[at + k] = q{k}.at[k];"""

# Of a block; and of the block that comes last, of all launches: it folds what all have left, in
# their order.
FOLD_OF_BLOCK = """\
    __shared__ {kind} parts[{lines}];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
{lanes}
    if (lane == 0) parts[line] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int j = 1; j < {lines}; ++j) {{ const {kind} other = parts[j]; sum = {combined}; }}
"""
FOLD_EACH = """\
    if (threadIdx.x == 0) a.part[array][(int)blockIdx.x - a.start[array]] = sum;"""
FOLD = """\
    __shared__ bool last;
    if (threadIdx.x == 0) {{
        a.partial[a.first + (int)blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(a.ticket, 1u) == (unsigned)a.total - 1;
    }}
    __syncthreads();
    if (!last) return;
    __threadfence();
    sum = {none};
    for (int j = threadIdx.x; j < a.total; j += {threads}) {{
        const {kind} other = ((const volatile {kind}*)a.partial)[j];
        sum = {combined};
    }}
{lanes}
    if (lane == 0) parts[line] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {{
        for (int j = 1; j < {lines}; ++j) {{ const {kind} other = parts[j]; sum = {combined}; }}
{results}
        *a.ticket = 0;
    }}"""
LANES = """\
    for (int d = 16; d > 0; d >>= 1) {{
        const {kind} other = __shfl_down_sync(0xffffffffu, sum, d);
        sum = {combined};
    }}"""
COMBINED = {how: ANY[how].format("sum", "other") for how in ("add", "maximum")}
NONE = {"add": "0", "maximum": "-INFINITE"}  # what nothing is folded to

NUMBERS = """\
struct Table_{name} {{
{members}
}};
extern "C" __global__ void __launch_bounds__({threads}) {name}(const Table_{name} a)
{{
    const int row = (int)blockIdx.x * {threads} + (int)threadIdx.x;
    if (row >= a.count) return;
{body}
}}
"""


def struct_of(members: Members) -> str:
    return "\n".join(
        f"    {ctype} {name}{f'[{many}]' if many else ''};" for ctype, name, many in members
    )


def list_source(
    graph: ListGraph, dtypes: Sequence[str], pack: int, members: Members, by_row: str, one: bool
) -> str:
    """A kernel of a graph for lists of arrays of these dtypes, read `pack` elements at a time.

    `by_row` is the dtype of the constants in memory, a row of them for an array, or for all of
    them if there is `one`; "" where each launch tells them, EACH where it does for each array.
    """
    fold = graph.fold
    nodes = reached_from(graph.outputs)
    checked(nodes)
    reads = graph.lists_read()
    names = {x.name: f"c{k}" for k, x in enumerate(graph.constants)}
    names |= _literals(nodes, names)
    lines, values = statements(nodes, {k: _element(k, dtypes[k]) for k in reads}, names)
    places = [
        f"{STORED[d]}* const list{k} = a.list{k}[array] + begin;"
        for k, d in enumerate(dtypes) if k in reads or k in graph.results
    ] + _constants(graph.constants, by_row, one)  # fmt: skip
    per_element = [
        *lines,
        *[f"q{k}.at[k] = {stored(values[x.name], x, dtypes[k])};"
          for k, x in graph.results.items()],
    ]  # fmt: skip
    if fold:
        places.append(f"{STORED[fold.term.dtype.name]} sum = {NONE[fold.how]};")
        how = COMBINED[fold.how].replace("other", values[fold.term.name])
        per_element.append(f"if (at + k < size) sum = {how};")
    body = [
        *[LOAD.format(ctype=STORED[dtypes[k]], pack=pack, k=k) for k in sorted(reads)],
        *[f"Pack<{STORED[dtypes[k]]}, {pack}> q{k};" for k in graph.results],
        "#pragma unroll",
        f"for (int k = 0; k < {pack}; ++k) {{",
        indent("\n".join(per_element), "    "),
        "}",
        *[SAVE.format(ctype=STORED[dtypes[k]], pack=pack, k=k) for k in graph.results],
    ]
    text = KERNEL.format(
        name=graph.name, members=struct_of(members), threads=THREADS, chunk=CHUNK, pack=pack,
        places=indent("\n".join(places), "    "), body=indent("\n".join(body), " " * 8),
        fold=_fold(fold) if fold else "",
    )  # fmt: skip
    used = [*dtypes, by_row, *([x.dtype.name for x in fold.results] if fold else [])]
    return headers_of(used) + device_functions([text]) + PACK + text


def _element(k: int, dtype: str) -> str:
    read = f"p{k}.at[k]"
    return f"{TO_FLOAT[dtype]}({read})" if dtype in TO_FLOAT else read


def _constants(constants: Sequence[Traced], by_row: str, one: bool) -> list[str]:
    """The constants of a block's array, as variables."""
    lines = []
    for k, x in enumerate(constants):
        ctype = COMPUTED[x.dtype.name]
        place = f"a.constants[{'' if one else f'a.row[array] * {len(constants)} + '}{k}]"
        if by_row in TO_FLOAT:
            place = f"{TO_FLOAT[by_row]}({place})"
        value = {"": f"a.told{k}", EACH: f"a.told{k}[array]"}.get(by_row, place)
        lines.append(f"const {ctype} c{k} = {f'{value} != 0' if ctype == 'bool' else value};")
    return lines


def _fold(fold: Folding) -> str:
    kind, combined = STORED[fold.term.dtype.name], COMBINED[fold.how]
    words: dict[str, Any] = {"kind": kind, "combined": combined, "lines": THREADS // 32,
                             "none": NONE[fold.how]}  # fmt: skip
    words["lanes"] = LANES.format(kind=kind, combined=combined)
    block = FOLD_OF_BLOCK.format(**words)
    if not fold.results:
        return block + FOLD_EACH
    names = {x.name: f"a.last{k}" for k, x in enumerate(fold.constants)}
    nodes = reached_from(fold.results)
    checked(nodes)
    lines, values = statements(nodes, {0: "sum"}, {**names, **_literals(nodes, names)})
    lines += [f"*a.result{k} = {stored(values[x.name], x, x.dtype.name)};"
              for k, x in enumerate(fold.results)]  # fmt: skip
    results = indent("\n".join(lines), " " * 8)
    return block + FOLD.format(threads=THREADS, results=results, **words)


def _literals(nodes: Sequence[Traced], named: dict[int, str]) -> dict[int, str]:
    """Numbers that no launch tells, written out."""
    numbers = [x for x in nodes if x.function == "number" and x.name not in named]
    return statements(numbers, {}, None)[1]


def numbers_source(
    graph: NumbersGraph, inputs: Sequence[str], counts: Sequence[str], constant: str,
    members: Members,
) -> str:  # fmt: skip
    """A kernel in which a thread computes the numbers of a row.

    `inputs` are C expressions in double precision; the first results go to `counts`, of these
    dtypes, the others to a row of constants of the dtype `constant`.
    """
    nodes = reached_from(graph.results)
    checked(nodes)
    lines, values = statements(nodes, dict(enumerate(f"i{k}" for k in range(len(inputs)))), None)
    body = [f"const double i{k} = {text};" for k, text in enumerate(inputs)] + lines
    rest = len(graph.results) - len(counts)
    for k, x in enumerate(graph.results):
        if k < len(counts):
            body.append(f"*a.count{k}[row] = ({STORED[counts[k]]}){values[x.name]};")
        else:
            place = f"a.constants[(long long)(a.first + row) * {rest} + {k - len(counts)}]"
            body.append(f"{place} = ({STORED[constant]}){values[x.name]};")
    text = NUMBERS.format(
        name=graph.name, members=struct_of(members), threads=THREADS,
        body=indent("\n".join(body), "    "),
    )  # fmt: skip
    return device_functions([text]) + text


def told(constants: Sequence[Traced], prefix: str) -> list[tuple[str, str, int]]:
    """Members for constants that a launch tells."""
    return [(C_NUMBERS[number_format(x)], f"{prefix}{k}", 0) for k, x in enumerate(constants)]
