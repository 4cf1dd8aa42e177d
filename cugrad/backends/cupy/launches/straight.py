"""Functions that launch what was launched before for operands of the same form, in a straight line.

What a row starts, and what it makes, depends on the form of its operands alone: dtypes, shapes, how
they lie, and numbers. So for each form a function is written down, as text, that decides nothing:
it makes the new arrays, packs addresses, and starts kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import cupy

from ...several import several
from ..arrays import Blank, alloc, blank
from ..pools import Missing, pool_of, process_pools
from .starting import StructKernel, current_stream, driver_launch, here

__all__ = ["LibraryCall", "Function", "Start", "launches_of"]

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
ndarray = cupy.ndarray
SMALL, GRAIN = 1 << 14, 256  # bytes: what no offload moves, and multiples of which arrays begin at


class LibraryCall(NamedTuple):
    """A function of addresses, which are expressions: a product by cuBLAS, say."""

    function: Function
    addresses: Sequence[str]


class Start(NamedTuple):
    """A kernel and what it is told: addresses, as expressions, and what follows them."""

    kernel: StructKernel
    grid: Sequence[int]
    block: Sequence[int]
    addresses: Sequence[str]
    tail: bytes


def _pieces(new: Mapping[str, Any], together: Sequence[str]) -> tuple[dict[str, str], int]:
    """Where in one piece of memory the small ones of new arrays lie, as text, and its bytes; none
    where there are not several.
    """
    forms = {name: new[name] for name in together if isinstance(new.get(name), Blank)}
    small = {name: form for name, form in forms.items() if form.size <= SMALL}
    if len(small) < 2:
        return {}, 0
    places, total = dict[str, str](), 0
    for name, form in small.items():
        places[name] = f"piece + {total}" if total else "piece"
        total += -(-form.size // GRAIN) * GRAIN
    return places, total


def _allocating(blocks: Mapping[str, int]) -> list[str]:
    """The lines that get blocks of memory, by name, of so many bytes.

    A block's size says from which of our pools it comes, so that is asked by itself where CuPy's
    allocator, the thread's or the process's, is still ours: that asks others twice. It has no
    block now and then; the allocator then knows what to do.
    """
    if not blocks:
        return []
    ours = [f"    {name} = ({pool_of(size)} if is_ours else alloc)({size})"
            for name, size in blocks.items()]  # fmt: skip
    return ["try:", "    is_ours = allocator() is ours", *ours, "except Missing:",
            *[f"    {name} = alloc({size})" for name, size in blocks.items()]]  # fmt: skip


def launches_of(
    parameters: Sequence[str], operands: Sequence[str], new: Mapping[str, Any],
    starts: Sequence[Start | LibraryCall], answer: str, multiple: int, opening: str = "pass",
    closing: str = "pass", unless: str = "", together: Sequence[str] = (), **names: Any,
) -> Function:  # fmt: skip
    """A function of `parameters` that starts kernels and answers; `operands` are the arrays among
    them, and among the names that the line `opening` makes of them.

    `new` are the arrays that it makes, by name: a `Blank`, or a function that makes one, or
    several, where the name is a list of names. It answers None, before it does anything, if not all
    operands begin at a multiple of so many bytes, or if `unless` holds, an expression of their
    addresses. `closing` is a line that is run at its end. New arrays that live as long as one
    another may lie `together`: small ones of them have one piece of memory, which costs as much as
    one array does.
    """
    pools = process_pools()
    scope: dict[str, Any] = {
        "__name__": __name__, "ndarray": ndarray, "blank": blank, "alloc": alloc, "here": here,
        "launch": driver_launch, "stream": current_stream, "Missing": Missing,
        "allocator": cupy.cuda.get_allocator, "ours": pools.malloc, "small": pools.pools[0].malloc,
        "large": pools.pools[1].malloc, **names,
    }  # fmt: skip
    lines = [opening, *[f"at_{x} = {x}.data.ptr" for x in operands]]
    if multiple > 1 and operands:
        bits = " | ".join(f"at_{x}" for x in operands)
        lines += [f"if ({bits}) % {multiple}:", "    return None"]
    if unless:
        lines += [f"if {unless}:", "    return None"]
    pieces, total = _pieces(new, together)
    blocks = {f"block_{name}": form.size for name, form in new.items()
              if isinstance(form, Blank) and name not in pieces}  # fmt: skip
    lines += _allocating(blocks | ({"piece": total} if pieces else {}))
    for name, form in new.items():
        if isinstance(form, Blank):
            scope |= {f"{part}_{name}": value for part, value in form._asdict().items()}
            memory = pieces.get(name, f"block_{name}")
            told = f"shape_{name}, kind_{name}, {memory}, strides_{name}, None"
            lines += [f"{name} = blank(ndarray)", f"{name}._init({told})"]
        else:
            make = f"make_{name.partition(',')[0]}"
            scope[make] = form
            lines.append(f"{name} = {make}()")
        lines += [f"at_{x} = {x}.data.ptr" for x in name.split(", ")]
    packs = not several.devices and any(type(x) is Start for x in starts)
    if packs:
        lines += ["places = here.places",
                  "place = places.pop() if places else here.another()",
                  "memory, address = place"]  # fmt: skip
    for k, step in enumerate(starts):
        if isinstance(step, LibraryCall):
            scope[f"call{k}"] = step.function
            lines.append(f"call{k}({', '.join(step.addresses)})")
            continue
        kernel, grid, block, addresses, tail = step
        told = ", ".join([*addresses, f"tail{k}"])
        packed = struct.Struct(f"@{len(addresses)}P{len(tail)}s")
        scope |= {f"tail{k}": tail, f"kernel{k}": kernel}
        if several.devices:
            scope[f"pack{k}"] = packed.pack
            lines.append(f"kernel{k}({tuple(grid)}, {tuple(block)}, pack{k}({told}))")
            continue
        scope[f"pack{k}"] = packed.pack_into
        sizes = ", ".join(map(str, (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])))
        # Operands that began at odd addresses have started another kernel than this.
        handle = kernel.handle or f"kernel{k}.handle or kernel{k}.compiled()"
        lines += [f"pack{k}(memory, 0, {told})",
                  f"launch({handle}, {sizes}, 0, stream().ptr, address, 0)"]  # fmt: skip
    if packs:
        lines.append("places.append(place)")
    lines += [closing, f"return {answer}"]
    exec(f"def run({', '.join(parameters)}):\n    " + "\n    ".join(lines), scope)
    function: Function = scope["run"]
    return function
