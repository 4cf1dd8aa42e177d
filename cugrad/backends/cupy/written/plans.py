"""Launches of written kernels that are done again for operands of the same form.

What a row's function starts, and what it makes, depends on dtypes, shapes, alignment and numbers
alone. So its first run is noted down, with the places of operands and of new arrays among the
arguments; then those places are filled, and nothing is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

from .launch import noted, tickets_of_stream

__all__ = ["planned"]

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
ndarray, frombuffer, uint8 = cupy.ndarray, np.frombuffer, np.uint8
MOST_PLANS = 4096  # of one row; then it begins anew
COUNTERS = np.dtype(np.uint32).num  # of arrays that count the blocks of a stream, and of no others
NUMBERS = frozenset([int, float, bool, str, tuple, type(None)])  # what parameters are
ALIGNMENT = 16  # bytes, of which kernels read as many at once


def launches_of(operands: Sequence[Array], calls: Sequence[Any], results: Any) -> Function:
    """A function of operands of one form that launches what was launched, in a straight line."""
    names = {x.data.ptr: f"x{k}" for k, x in enumerate(operands)}
    several = results if isinstance(results, tuple) else (results,)
    outputs = {x.data.ptr: x for x in several}
    scope: dict[str, Any] = {
        "ndarray": ndarray, "frombuffer": frombuffer, "uint8": uint8, "tickets": tickets_of_stream,
    }  # fmt: skip
    new: list[str] = []
    lines: list[str] = []
    for number, (kernel, grid, block, args) in enumerate(calls):
        told = []
        for place in kernel.order:
            x = args[place]
            if type(x) is not ndarray and x is not None:
                told.append(f"v{number}_{place}")
                scope[told[-1]] = x
            elif x is None or not x.size:
                told.append("0")
            elif x.dtype.num == COUNTERS and x.data.ptr not in names:
                told.append("tickets().data.ptr")
            else:
                pointer = x.data.ptr
                if pointer not in names:
                    name = names[pointer] = f"y{len(new)}"
                    kept = outputs.get(pointer, x)
                    scope[f"shape_{name}"], scope[f"dtype_{name}"] = kept.shape, kept.dtype
                    new.append(f"    {name} = ndarray(shape_{name}, dtype_{name})")
                told.append(f"{names[pointer]}.data.ptr")
        for part, value in (("raw", kernel.raw), ("pack", kernel.pack), ("how", (grid, block))):
            scope[f"{part}{number}"] = value
        packed = f"frombuffer(pack{number}({', '.join(told)}), uint8)"
        lines.append(f"    raw{number}(*how{number}, ({packed},))")
    answer = ", ".join(names[x.data.ptr] for x in several)
    answer += "," * (isinstance(results, tuple) and len(several) == 1)
    head = f"def run({', '.join(f'x{k}' for k in range(len(operands)))}):"
    exec("\n".join([head, *new, *lines, f"    return {answer}"]), scope)
    function: Function = scope["run"]
    return function


def planned(function: Function) -> Function:
    """A row's function, whose launches are kept by the form of its operands.

    It must do nothing but launch written kernels where its operands are dense: what else it did
    would be left out the next time. None for arrays of the host, or of a vmap.
    """
    plans: dict[Any, Function] = {}

    def run(*args: Any) -> Any:
        key: list[Any] = []
        operands: list[Array] = []
        for x in args:
            if type(x) is ndarray:
                if not x._c_contiguous:
                    return function(*args)
                key += (x.dtype.num, x.shape, x.data.ptr % ALIGNMENT)
                operands.append(x)
            elif x.__class__ in NUMBERS:
                key.append(x)
            else:
                return function(*args) if isinstance(x, np.generic) else None
        form = tuple(key)
        try:
            return plans[form](*operands)
        except KeyError:
            return _first_run(function, args, operands, plans, form)

    run.plans = plans  # type: ignore[attr-defined]
    return run


def _first_run(
    function: Function, args: Sequence[Any], operands: list[Array], plans: dict[Any, Function],
    form: Any,
) -> Any:  # fmt: skip
    before, noted.calls = noted.calls, []
    try:
        results = function(*args)
        calls = noted.calls
    finally:
        noted.calls = before
    if results is None or not calls or not _can_be_kept(operands, calls):
        return results
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[form] = launches_of(operands, calls, results)
    return results


def _can_be_kept(operands: list[Array], calls: Sequence[Any]) -> bool:
    """Whether each array of the launches is an operand, from its beginning, or new."""
    spans = [(x.data.ptr, x.data.ptr + x.nbytes) for x in operands]
    if len({begin for begin, _ in spans}) < len(spans) or not all(x.size for x in operands):
        return False  # one array in two places: the next time they may be two
    arrays = [x for *_, args in calls for x in args if type(x) is ndarray and x.size]
    return not any(b < x.data.ptr < e for x in arrays for b, e in spans)
