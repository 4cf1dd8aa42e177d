"""The text of an elementwise kernel: operands read, statements computed, results written."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from ...traced.arrays import Traced
from .expressions import COMPLEX, STORED, device_functions, number_format, statements
from .layouts import Layout

__all__ = [
    "C_NUMBERS", "THREADS", "by_size", "coordinates", "element", "fields", "headers_of",
    "kernel_source", "offsets", "stored", "struct_format",
]  # fmt: skip

THREADS = 256
HEADERS = {"float16": "#include <cuda_fp16.h>\n", "bfloat16": "#include <cuda_bf16.h>\n",
           "complex64": COMPLEX, "complex128": COMPLEX}  # fmt: skip
TO_FLOAT = {"float16": "__half2float", "bfloat16": "__bfloat162float"}
FROM_FLOAT = {"float16": "__float2half_rn", "bfloat16": "__float2bfloat16_rn"}
C_NUMBERS = {"f": "float", "d": "double", "?": "bool", "i": "int", "q": "long long"}

PACK = """\
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack { T at[N]; };
"""

Numbers = Sequence[Traced]


def fields(
    layout: Layout, inputs: Sequence[str], outputs: Sequence[str], numbers: Numbers
) -> list[tuple[str, str, str]]:
    """The members of the kernel's one argument: (C type, name, letter of `struct`), by size."""
    pointers = [(f"const {STORED[d]}*", f"in{k}", "P") for k, d in enumerate(inputs)]
    pointers += [(f"{STORED[d]}*", f"out{k}", "P") for k, d in enumerate(outputs)]
    index = ("long long", "q") if layout.wide else ("int", "i")
    sizes = [(index[0], f"size{k}", index[1]) for k in range(len(layout.shape))]
    steps = [
        (index[0], f"step{operand}_{k}", index[1])
        for operand, k in stepping(layout, len(inputs) + len(outputs))
    ]
    letters = [number_format(x) for x in numbers]
    values = [(C_NUMBERS[c], f"number{k}", c) for k, c in enumerate(letters)]
    return by_size(pointers + sizes + steps + values)


def by_size(members: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Members so that none needs a gap before it: pointers first."""
    sizes = {"P": 8, "q": 8, "d": 8, "i": 4, "f": 4, "?": 1}
    return sorted(members, key=lambda member: -sizes[member[2]])


def stepping(layout: Layout, count: int) -> list[tuple[int, int]]:
    """The strides that the kernel is told: (operand, dim). That of a vector or of one element in
    the last dim is known.
    """
    last = len(layout.shape) - 1
    results = layout.modes[-1]
    modes = layout.modes[:-1] + results * (count - len(layout.modes) + 1)
    return [
        (operand, k)
        for operand, mode in enumerate(modes)
        for k in range(last + 1)
        if k < last or mode == "e"
    ]


def struct_format(members: Sequence[tuple[str, str, str]]) -> str:
    """The format of `struct` in which the members are packed as C lays them."""
    return "@" + "".join(letter for _, _, letter in members) + "0P"  # as long as C's


def kernel_source(
    name: str,
    nodes: Sequence[Traced],
    results: Sequence[Traced],
    layout: Layout,
    inputs: Sequence[str],
    outputs: Sequence[str],
    numbers: Numbers,
) -> str:
    """A kernel that computes `results` of `inputs`, all named by their dtypes.

    All outputs lie alike: `layout` has the inputs and then one output.
    """
    members = fields(layout, inputs, outputs, numbers)
    struct = "\n".join(f"    {ctype} {member};" for ctype, member, _ in members)
    named = {x.name: f"a.number{k}" for k, x in enumerate(numbers)} if numbers else None
    read = {
        k: element(layout.modes[k], k, dtype) for k, dtype in enumerate(inputs)
    }  # fmt: skip
    lines, names = statements(nodes, read, named)
    names_of = [stored(names[x.name], x, dtype) for x, dtype in zip(results, outputs)]
    store = [f"q{k}.at[k] = {value};" for k, value in enumerate(names_of)]
    index = "long long" if layout.wide else "int"
    modes = layout.modes[:-1], layout.modes[-1] * len(outputs)
    body = [
        f"const {index} thread = ({index})blockIdx.x * {THREADS} + threadIdx.x;",
        *_places(layout, len(inputs), len(outputs), index),
        *[_load(layout, k, d, modes[0][k]) for k, d in enumerate(inputs)],
        *[f"Pack<{STORED[d]}, {layout.pack}> q{k};" for k, d in enumerate(outputs)],
        "#pragma unroll",
        f"for (int k = 0; k < {layout.pack}; ++k) {{",
        indent("\n".join([*lines, *store]), "    "),
        "}",
        *[_save(layout, k, d) for k, d in enumerate(outputs)],
    ]
    return (
        f"{headers_of((*inputs, *outputs))}{device_functions([*lines, *store])}{PACK}"
        f"struct Operands_{name} {{\n{struct}\n}};\n"
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}'
        f"(const Operands_{name} a)\n{{\n" + indent("\n".join(body), "    ") + "\n}\n"
    )


def headers_of(dtypes: Sequence[str]) -> str:
    """The CUDA headers that dtypes need, and what complex numbers are."""
    return "".join(dict.fromkeys(HEADERS[d] for d in sorted(set(dtypes) & set(HEADERS))))


def _places(layout: Layout, inputs: int, outputs: int, index: str) -> list[str]:
    """Which elements are this thread's, and where each operand has them."""
    last = len(layout.shape) - 1
    if last == 0:
        lines = [f"const {index} c0 = thread * {layout.pack};", "if (c0 >= a.size0) return;"]
        if layout.pack > 1:
            lines.append("const int count = a.size0 - c0 < "
                         f"{layout.pack} ? (int)(a.size0 - c0) : {layout.pack};")  # fmt: skip
    else:
        packs = "a.size{}" if layout.pack == 1 else f"(a.size{{}} / {layout.pack})"
        lines = [f"{index} rest = thread;"]
        for k in range(last, 0, -1):
            size = packs.format(k) if k == last else f"a.size{k}"
            scale = f" * {layout.pack}" if k == last and layout.pack > 1 else ""
            lines.append(f"const {index} c{k} = rest % {size}{scale};")
            lines.append(f"rest /= {size};")
        lines += [f"const {index} c0 = rest;", "if (c0 >= a.size0) return;"]
    return lines + offsets(layout, inputs, outputs, index)


def coordinates(layout: Layout, number: str, index: str) -> list[str]:
    """The coordinates of the element of a number, counted in the order of the dims."""
    lines = [f"{index} rest = {number};"]
    for k in range(len(layout.shape) - 1, 0, -1):
        lines += [f"const {index} c{k} = rest % a.size{k};", f"rest /= a.size{k};"]
    return [*lines, f"const {index} c0 = rest;"]


def offsets(layout: Layout, inputs: int, outputs: int, index: str) -> list[str]:
    """Where each operand has the element of the coordinates."""
    lines, last = [], len(layout.shape) - 1
    told = stepping(layout, inputs + outputs)
    modes = layout.modes[:-1] + layout.modes[-1] * outputs
    for operand in range(inputs + outputs):
        terms = [f"c{k} * a.step{operand}_{k}" for o, k in told if o == operand]
        if modes[operand] == "v":
            terms.append(f"c{last}")
        lines.append(f"const {index} at{operand} = {' + '.join(terms) or '0'};")
    return lines


def _load(layout: Layout, k: int, dtype: str, mode: str) -> str:
    ctype, pack = STORED[dtype], layout.pack
    if mode != "v":
        return f"const {ctype} p{k} = a.in{k}[at{k}];"
    whole = f"p{k} = *(const Pack<{ctype}, {pack}>*)(a.in{k} + at{k});"
    if len(layout.shape) > 1:
        return f"Pack<{ctype}, {pack}> {whole}"
    return (
        f"Pack<{ctype}, {pack}> p{k} = {{}};\n"
        f"if (count == {pack}) {whole}\n"
        f"else\n"
        f"    for (int k = 0; k < {pack}; ++k)\n"
        f"        if (k < count) p{k}.at[k] = a.in{k}[at{k} + k];"
    )


def element(mode: str, k: int, dtype: str) -> str:
    stored = f"p{k}.at[k]" if mode == "v" else f"p{k}"
    return f"{TO_FLOAT[dtype]}({stored})" if dtype in TO_FLOAT else stored


def stored(name: str, node: Traced, dtype: str) -> str:
    if dtype in FROM_FLOAT:
        return f"{FROM_FLOAT[dtype]}({name})"
    return name if STORED[dtype] == STORED.get(node.dtype.name) else f"({STORED[dtype]}){name}"


def _save(layout: Layout, k: int, dtype: str) -> str:
    ctype, pack = STORED[dtype], layout.pack
    place = f"a.out{k} + at{len(layout.modes) - 1 + k}"
    if pack == 1:
        return f"*({place}) = q{k}.at[0];"
    whole = f"*(Pack<{ctype}, {pack}>*)({place}) = q{k};"
    if len(layout.shape) > 1:
        return whole
    return (
        f"if (count == {pack}) {whole}\n"
        f"else\n"
        f"    for (int k = 0; k < {pack}; ++k)\n"
        f"        if (k < count) ({place})[k] = q{k}.at[k];"
    )
