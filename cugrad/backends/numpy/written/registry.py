"""Which rows have written code, and how it goes through arrays by blocks that stay in a cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..half import SINGLE, is_half, narrowed_into, widened_into

__all__ = [
    "BLOCK", "LEAST", "aligned", "are_plain", "backward", "backward_of", "forward", "forward_of",
    "in_blocks", "rows_of", "slope_in_blocks",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

BLOCK = 1 << 18  # elements: fewer would cost more calls of NumPy than they save of its time
LEAST = 1 << 16  # elements from which on what is written pays
LINE = 16  # numbers of float32 in a line of a cache
FORWARDS: dict[str, Function] = {}  # by row: the result of its inputs and parameters, or None
BACKWARDS: dict[str, Function] = {}  # by row: the gradients of all inputs, or None
FEW: set[Function] = set()  # those that take operands of fewer elements, too
OF_HALVES: set[str] = set()  # rows that are written for half precision alone
MODULES = ("activations", "losses", "norms", "ordered", "quotients", "reductions", "scores")


def forward(name: str, few: bool = False, halves: bool = False) -> Callable[[Function], Function]:
    """Says that a function computes a row, of its inputs and parameters by position.

    It gets operands of at least LEAST elements, and if it is for `few`, others; if it is for
    `halves`, those in half precision.
    """
    if halves:
        OF_HALVES.add(name)
    return lambda function: _enter(FORWARDS, name, function, few)


def backward(name: str, few: bool = False) -> Callable[[Function], Function]:
    """Says that a function computes a row's gradients: of `g, saved, params, inputs`.

    `saved` are what the node keeps, by name; `inputs` are the inputs whose gradients are asked for.
    """
    return lambda function: _enter(BACKWARDS, name, function, few)


def _enter(table: dict[str, Function], name: str, function: Function, few: bool) -> Function:
    table[name] = function
    if few:
        FEW.add(function)
    return function


@cache
def _read() -> None:
    for name in MODULES:
        import_module(f".{name}", __package__)


def forward_of(op: Any, plain: Function) -> Function:
    """The forward of a row: as written, or `plain` where that declines."""
    _read()
    written = FORWARDS.get(op.name)
    if written is None:
        return plain
    if op.name in OF_HALVES:
        return _of_halves(written, plain)
    few = written in FEW

    def run(*args: Any, **params: Any) -> Any:
        value = written(*args, **params) if few or args[0].size >= LEAST else None
        return plain(*args, **params) if value is None else value

    return run


def _of_halves(written: Function, plain: Function) -> Function:
    """Its `wide` is the forward for operands of which none is in half precision."""

    def run(*args: Any, **params: Any) -> Any:
        x = args[0] if hasattr(args[0], "dtype") else args[1]
        value = None
        if x.dtype.itemsize == 2 and x.size >= LEAST:
            value = written(*args, **params)
        return plain(*args, **params) if value is None else value

    run.wide = getattr(plain, "wide", plain)  # type: ignore[attr-defined]
    return run


def backward_of(op: Any, mask: int) -> Function | None:
    """`gradients(g, saved, meta)` of a row as written, None if there is none."""
    _read()
    written = BACKWARDS.get(op.name)
    if written is None:
        return None
    inputs = [name for i, name in enumerate(op.inputs) if mask >> i & 1]
    names, few = op.saves(mask), written in FEW

    def gradients(g: Any, saved: Any, meta: Any) -> Any:
        if not few and g.size < LEAST:
            return None
        params = {}
        if meta is not None:
            _, params, _, compute, conjugates = meta
            if compute is not None or conjugates:
                return None
        return written(g, dict(zip(names, saved)), params, inputs)

    gradients.least = 0 if few else LEAST  # type: ignore[attr-defined]
    return gradients


def are_plain(*arrays: Array | None, dtype: np.dtype[Any] = SINGLE) -> bool:
    """Whether arrays are of one dtype and dense, and in no memory that says who reads it."""
    return all(
        x is None or type(x) is np.ndarray and x.dtype is dtype and x.flags.c_contiguous
        for x in arrays
    )


def rows_of(size: int) -> int:
    """How many rows of so many elements are a block."""
    return max(1, BLOCK // size)


def aligned(size: int) -> Array:
    """New numbers of float32 that begin where a cache line does: a sixth of the time is saved."""
    room = np.empty(size + LINE, SINGLE)
    first = -room.ctypes.data % (4 * LINE) // 4
    return room[first : first + size]


def in_blocks(
    function: Callable[..., None], rooms: int, *arrays: Array, halves: bool = False
) -> Array | None:
    """A new array that `function(*blocks, result, *scratch)` fills, a block of each at a time.

    It gets so many `rooms` of scratch. None for arrays that are not plain, and of one shape; with
    `halves` they may be of one half precision, and the function computes in float32.
    """
    first = arrays[0]
    widens = halves and is_half(first.dtype)
    kind = first.dtype if widens else SINGLE
    if not are_plain(*arrays, dtype=kind) or any(x.shape != first.shape for x in arrays):
        return None
    result = np.empty(first.shape, kind)
    flat = [x.reshape(-1) for x in (*arrays, result)]
    rooms += len(flat) if widens else 0
    scratch = [aligned(min(BLOCK, first.size)) for _ in range(rooms)]
    for start in range(0, first.size, BLOCK):
        parts = [x[start : start + BLOCK] for x in flat]
        room = [x[: parts[0].size] for x in scratch]
        if not widens:
            function(*parts, *room)
            continue
        for wide, x in zip(room, parts[:-1]):
            widened_into(wide, x)
        function(*room)
        narrowed_into(parts[-1], room[len(parts) - 1], computed=True)
    return result


def slope_in_blocks(function: Callable[..., None], rooms: int, *arrays: Array) -> Any:
    """The gradient of a row of one operand, filled so, in half precision too; or None."""
    slope = in_blocks(function, rooms, *arrays, halves=True)
    return None if slope is None else (slope,)
