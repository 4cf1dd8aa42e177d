"""Launches of written kernels that are done again for operands of the same form.

A row's first run is noted down, with the places of operands and of new arrays among the arguments
of its kernels; then those places are filled, and nothing is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from ..arrays import form_of
from ..launches.starting import noted
from ..launches.straight import LibraryCall, Start, launches_of
from .launch import tickets_of_stream

__all__ = ["noted_run"]

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
ndarray = cupy.ndarray
COUNTERS = np.dtype(np.uint32).num  # of arrays that count the blocks of a stream, and of no others
ALIGNMENT = 16  # bytes, of which kernels read as many at once


def noted_run(
    run: Callable[[], Any], parameters: Sequence[str], operands: Mapping[str, Array],
    opening: str = "pass",
) -> tuple[Any, Function | None]:  # fmt: skip
    """What `run()` answers, and a function of `parameters` that launches the same kernels for
    operands of the same form: None where they cannot be known from what was launched.

    It must do nothing but launch kernels and products if its operands are dense: what else it did
    would be left out the next time. See `launches_of` for the rest.
    """
    before, noted.calls = noted.calls, []
    try:
        results = run()
        calls = noted.calls
    finally:
        noted.calls = before
    if results is None or not calls or not _can_be_kept(list(operands.values()), calls):
        return results, None
    return results, _again(parameters, operands, calls, results, opening)


def _can_be_kept(operands: list[Array], calls: Sequence[Any]) -> bool:
    """Whether each array of the launches is an operand, from its beginning, or new."""
    if None in calls or not all(x.size for x in operands):
        return False
    products = all(not isinstance(what, tuple) for what, _ in calls)  # they take any strides
    if not products and not all(x._c_contiguous for x in operands):
        return False
    spans = [(x.data.ptr, x.data.ptr + _extent(x)) for x in operands]
    if len({begin for begin, _ in spans}) < len(spans):
        return False  # one array in two places: the next time they may be two
    if any(begin % ALIGNMENT for begin, _ in spans):
        return False  # the kernels are those for such addresses
    arrays = [x for _, several in calls for x in several if x is not None and x.size]
    return not any(b < x.data.ptr < e for x in arrays for b, e in spans)


def _extent(x: Array) -> int:
    """The bytes from an array's first element to its last."""
    steps = zip(x.strides, x.shape, strict=True)
    return int(x.itemsize + sum(step * (n - 1) for step, n in steps if step > 0))


def _again(
    parameters: Sequence[str], operands: Mapping[str, Array], calls: Sequence[Any], results: Any,
    opening: str,
) -> Function | None:  # fmt: skip
    names = {x.data.ptr: name for name, x in operands.items()}
    several = results if isinstance(results, tuple) else (results,)
    outputs = {x.data.ptr: x for x in several if x is not None}
    new: dict[str, Any] = {}
    starts: list[Start | LibraryCall] = []
    for what, arrays in calls:
        addresses = []
        if not isinstance(what, tuple) and any(x.data.ptr not in names for x in arrays[:-1]):
            return None  # an operand is a copy
        for x in arrays:
            if x is None or not x.size:
                addresses.append("0")
                continue
            place = x.data.ptr
            if place not in names and x.dtype.num == COUNTERS:
                addresses.append("tickets().data.ptr")
                continue
            if place not in names:
                name = names[place] = f"y{len(new)}"
                kept = outputs.get(place, x)
                new[name] = form_of(kept.shape, kept.dtype)
            addresses.append(f"at_{names[place]}")
        if isinstance(what, tuple):
            kernel, grid, block, tail = what
            starts.append(Start(kernel, grid, block, addresses, tail))
        else:
            starts.append(LibraryCall(what, addresses))
    if any(x is not None and x.data.ptr not in names for x in several):
        return None  # it is made by what is not noted
    answer = ", ".join("None" if x is None else names[x.data.ptr] for x in several)
    answer += "," * (isinstance(results, tuple) and len(several) == 1)
    return launches_of(
        parameters, list(operands), new, starts, answer, ALIGNMENT, opening,
        tickets=tickets_of_stream,
    )  # fmt: skip
