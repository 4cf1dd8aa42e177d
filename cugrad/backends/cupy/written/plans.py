"""Launches of written kernels that are done again for operands of the same form.

What a row's function starts, and what it makes, depends on dtypes, shapes, alignment, numbers and
the settings in `wanted` alone. So its first run is noted down, with the places of operands and of
new arrays among the arguments; then those places are filled, and nothing is decided again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

from ...wanted import wanted
from ..arrays import alloc, blank, form_of
from .launch import noted, tickets_of_stream

__all__ = ["in_a_straight_line", "planned"]

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
ndarray, frombuffer = cupy.ndarray, np.frombuffer
MOST_PLANS = 4096  # of one row; then it begins anew
COUNTERS = np.dtype(np.uint32).num  # of arrays that count the blocks of a stream, and of no others
NUMBERS = frozenset([int, float, bool, str, tuple, type(None)])  # what parameters are
ALIGNMENT = 16  # bytes, of which kernels read as many at once


def launches_of(args: Sequence[Any], calls: Sequence[Any], results: Any) -> Function:
    """A function of arguments of one form that launches what was launched, in a straight line.

    If all operands began at addresses of vectors, it answers None where one does not.
    """
    operands = [(f"x{k}", x) for k, x in enumerate(args) if type(x) is ndarray]
    names = {x.data.ptr: name for name, x in operands}
    several = results if isinstance(results, tuple) else (results,)
    outputs = {x.data.ptr: x for x in several}
    scope: dict[str, Any] = {
        "ndarray": ndarray, "blank": blank, "alloc": alloc, "frombuffer": frombuffer,
        "tickets": tickets_of_stream,
    }  # fmt: skip
    new: list[str] = []
    lines: list[str] = []
    for number, (kernel, grid, block, told) in enumerate(calls):
        count = kernel.letters.count("P")  # pointers come first
        pointers, values = [], [told[k] for k in kernel.order[count:]]
        for x in [told[k] for k in kernel.order[:count]]:
            if x is None or not x.size:
                pointers.append("0")
            elif x.dtype.num == COUNTERS and x.data.ptr not in names:
                pointers.append("tickets().data.ptr")
            else:
                place = x.data.ptr
                if place not in names:
                    name = names[place] = f"y{len(new)}"
                    kept = outputs.get(place, x)
                    for part, value in form_of(kept.shape, kept.dtype)._asdict().items():
                        scope[f"{part}_{name}"] = value
                    call = f"_init(shape_{name}, kind_{name}, alloc(size_{name}), None, None)"
                    new.append(f"    {name} = blank(ndarray)\n    {name}.{call}")
                pointers.append(f"{names[place]}.data.ptr")
        head = f"@{count}P"
        tail = kernel.pack(*[0] * count, *values)[struct.calcsize(head) :]
        for part, value in (
            ("raw", kernel.raw), ("grid", grid), ("block", block), ("form", kernel.form),
            ("head", struct.Struct(head).pack), ("tail", tail),
        ):  # fmt: skip
            scope[f"{part}{number}"] = value
        packed = f"frombuffer(head{number}({', '.join(pointers)}) + tail{number}, form{number})"
        lines.append(f"    raw{number}(grid{number}, block{number}, ({packed},))")
    answer = ", ".join(names[x.data.ptr] for x in several)
    answer += "," * (isinstance(results, tuple) and len(several) == 1)
    aligned = not any(x.data.ptr % ALIGNMENT for _, x in operands)
    addresses = " | ".join(f"{name}.data.ptr" for name, _ in operands)
    check = [f"    if ({addresses}) % {ALIGNMENT}:\n        return None"] * aligned
    head = f"def run({', '.join(f'x{k}' for k in range(len(args)))}):"
    exec("\n".join([head, *check, *new, *lines, f"    return {answer}"]), scope)
    function: Any = scope["run"]
    function.aligned = aligned
    return function


def planned(function: Function) -> Function:
    """A row's function, whose launches are kept by the form of its operands.

    It must do nothing but launch written kernels where its operands are dense: what else it did
    would be left out the next time. None for arrays of the host, or of a vmap.
    """
    plans: dict[Any, Function] = {}

    def run(*args: Any) -> Any:
        form = _form(args)
        if form is None:
            is_foreign = any(
                type(x) is not ndarray
                and x.__class__ not in NUMBERS
                and not isinstance(x, np.generic)
                for x in args
            )
            return None if is_foreign else function(*args)
        try:
            return plans[form](*args)
        except KeyError:
            return _first_run(function, args, plans, form)

    run.plans = plans  # type: ignore[attr-defined]
    run.plan_of = lambda args: plans.get(_form(args))  # type: ignore[attr-defined]
    return run


def _form(args: Sequence[Any]) -> Any:
    """What a plan depends on; None where there is none."""
    key: list[Any] = [wanted.number]
    for x in args:
        if type(x) is ndarray and x._c_contiguous:
            key += (x.dtype.num, x.shape, x.data.ptr % ALIGNMENT)
        elif x.__class__ in NUMBERS:
            key.append(x)
        else:
            return None
    return tuple(key)


# The arguments are compared as they are: what is no array of CuPy has no `_c_contiguous`.
STRAIGHT = """\
def key({names}):
    return {key},

def run({signature}):
    if wanted.fused:
        try:
            launch = launches[{key},]
        except Exception:  # nothing is kept, or an operand is of another kind
            launch = general
        result = launch({names})
        if result is None and launch is not general:
            result = general({names})
        if result is not None:
            return result
    return plain({names})
"""


def in_a_straight_line(op: Any, function: Function, plain: Function) -> Function:
    """A row by its planned function, and by `plain` where that answers None."""
    launches: dict[Any, Function] = {}

    def general(*args: Any) -> Any:
        result = function(*args)
        launch: Any = None if result is None else function.plan_of(args)  # type: ignore[attr-defined]
        if launch is not None and launch.aligned:
            if len(launches) >= MOST_PLANS:
                launches.clear()
            launches[scope["key"](*args)] = launch
        return result

    names = [*op.inputs, *op.params]
    parts = []
    for name in op.inputs:
        part = f"{name}._c_contiguous, {name}.dtype.num, {name}.shape"
        parts.append(f"None if {name} is None else ({part})" if name in op.optional else part)
    scope: dict[str, Any] = {
        "wanted": wanted, "launches": launches, "general": general, "plain": plain,
    }  # fmt: skip
    scope.update((f"default_{n}", op.defaults.get(n)) for n in names)
    text = STRAIGHT.format(
        names=", ".join(names), key=", ".join(["wanted.number", *parts, *op.params]),
        signature=", ".join([names[0], *[f"{n}=default_{n}" for n in names[1:]]]),
    )  # fmt: skip
    exec(text, scope)
    run: Function = scope["run"]
    return run


def _first_run(
    function: Function, args: Sequence[Any], plans: dict[Any, Function], form: Any
) -> Any:
    before, noted.calls = noted.calls, []
    try:
        results = function(*args)
        calls = noted.calls
    finally:
        noted.calls = before
    operands = [x for x in args if type(x) is ndarray]
    if results is None or not calls or not _can_be_kept(operands, calls):
        return results
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[form] = launches_of(args, calls, results)
    return results


def _can_be_kept(operands: list[Array], calls: Sequence[Any]) -> bool:
    """Whether each array of the launches is an operand, from its beginning, or new."""
    spans = [(x.data.ptr, x.data.ptr + x.nbytes) for x in operands]
    if len({begin for begin, _ in spans}) < len(spans) or not all(x.size for x in operands):
        return False  # one array in two places: the next time they may be two
    arrays = [x for *_, args in calls for x in args if type(x) is ndarray and x.size]
    return not any(b < x.data.ptr < e for x in arrays for b, e in spans)
