"""Compiles written kernels, once for each kind of operands, and says with how many threads."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fused.copies import dense
from ..fused.expressions import name_of
from ..fused.reductions import tickets_of_stream
from ..kernels import code
from ..launches.starting import StructKernel, start

__all__ = [
    "BLOCK", "FLOATS", "LIMIT", "Written", "accumulator", "blocks", "dense", "held_by_team",
    "int32", "int64", "kernel", "name_of", "pack_of", "team_of", "tickets_of_stream",
]  # fmt: skip

Array = Any  # cupy.ndarray

FLOATS = ("float32", "float16", "bfloat16", "float64")
BLOCK = 256  # threads
HELD = 16  # elements of a row that a thread keeps at most
LIMIT = 2**31 - 2**20  # below it an int counts on for a block or two
int32, int64 = np.int32, np.int64


HEAD = re.compile(
    r'extern "C" __global__ void __launch_bounds__\(([\w, ]+)\) (\w+)\(([^)]*)\)\s*\{', re.S
)
LETTERS = {  # of what is no pointer, as struct packs it: numbers, and the bytes of structs
    "i64": "q", "int": "i", "float": "f", "Window": "72s",
    "Attention": {"f": "0q272s", "d": "0q280s"},
}  # fmt: skip


class Written:
    """A kernel whose arguments are packed into one: a launch then costs as much whatever it is
    told.
    """

    __slots__ = ("kernel", "count", "head", "pack", "order", "read")

    def __init__(self, text: str, name: str, sums: str) -> None:
        source, letters, self.order, self.read = _of_one_argument(
            text, name, "d" if sums == "float64" else "f"
        )
        self.kernel = StructKernel(source, name)
        self.count = letters.count("P")  # pointers come first
        self.head, self.pack = struct.Struct(f"@{self.count}P"), struct.Struct(letters).pack

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        """Starts it with arrays, numbers, and the bytes of structs, in the order of its text; None
        is a null pointer.
        """
        told = [args[k] for k in self.order]
        arrays, values = told[: self.count], told[self.count :]
        tail = self.pack(*[0] * self.count, *values)[self.head.size :]
        start(self.kernel, grid, block, arrays, self.head.pack, tail, self.read)


def _of_one_argument(text: str, name: str, sums: str) -> tuple[str, str, list[int], list[int]]:
    """A kernel's text with its parameters as members of a struct, pointers first, how to pack that,
    the order in which members take the parameters, and the numbers of pointers to what is only
    read.
    """
    head = next(m for m in HEAD.finditer(text) if m[2] == name)
    parameters = [" ".join(p.split()) for p in head[3].split(",")]
    order = sorted(range(len(parameters)), key=lambda k: "*" not in parameters[k])
    members, reads, form = [], [], "@"
    for parameter in [parameters[k] for k in order]:
        kind, _, member = parameter.rpartition(" ")
        members.append(f"    {kind.removeprefix('const ') if kind[-1] != '*' else kind} {member};")
        by = "& " if kind.startswith("const ") and kind[-1] != "*" else " "
        reads.append(f"    {kind}{by}{member} = told.{member};")
        letter: Any = LETTERS.get(kind.removeprefix("const "), sums if kind == "A" else "P")
        form += letter if isinstance(letter, str) else letter[sums]
    body = (
        f"struct Told_{name} {{\n" + "\n".join(members) + "\n};\n"
        f'extern "C" __global__ void __launch_bounds__({head[1]}) {name}(const Told_{name} told)\n'
        "{\n" + "\n".join(reads)
    )
    read = [k for k, member in enumerate(members) if member.lstrip().startswith("const ")]
    return text[: head.start()] + body + text[head.end() :], form + "0q", order, read


_kernels: dict[Any, Written] = {}


def kernel(
    text: str, name: str, dtype: str, weight: str | None = None, pack: int = 1, **numbers: int
) -> Written:
    """The kernel of a name from `kernels`, for elements and weights of these dtypes."""
    key = name, dtype, weight, pack, tuple(numbers.values())
    ready = _kernels.get(key)
    if ready is None:
        ready = Written(code(text, dtype, weight, pack, **numbers), name, dtype)
        _kernels[key] = ready
    return ready


def accumulator(dtype: Any) -> Any:
    """The NumPy type in which sums of a dtype are kept."""
    return np.float64 if name_of(dtype) == "float64" else np.float32


def pack_of(n: int, *arrays: Array) -> int:
    """How many neighbours fit 16 bytes, where rows of n elements begin at multiples of that."""
    pack = 16 // arrays[0].dtype.itemsize
    while pack > 1 and (n % pack or any(x.data.ptr % (pack * x.dtype.itemsize) for x in arrays)):
        pack //= 2
    return pack


def team_of(work: int) -> int:
    """How many threads share a row of so much work: four pieces each, or more."""
    team = 8
    while team < 1024 and team * 4 < work:
        team *= 2
    return team


def held_by_team(n: int, pack: int) -> tuple[int, int]:
    """How many threads share a row of n elements, and how many packs each keeps, of about 16
    elements: 0 where there are more, and it reads again.
    """
    team = team_of(max(n // pack, n // 4))
    held = 1 << (blocks(n, team * pack) - 1).bit_length()
    return team, held if held * pack <= HELD and held <= 8 else 0  # 16 alone are in memory


def blocks(threads: int, block: int = BLOCK) -> int:
    """How many blocks have so many threads."""
    return -(-threads // block)
