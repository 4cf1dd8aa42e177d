"""Launches of written kernels that are done again for operands of the same form.

A row's first run is noted down, with the places of operands and of new arrays among the arguments
of its kernels; then those places are filled, and nothing is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import cupy
import numpy as np

from ...moments import waiting
from ..arrays import form_of
from ..launches.rows import form_of_array, key_text, of_array_or_none, straight
from ..launches.starting import NewArrays, NotedCall, noted
from ..launches.straight import LibraryCall, Start, launches_of
from .launch import tickets_of_stream

__all__ = ["kept", "noted_run"]

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
ndarray = cupy.ndarray
COUNTERS = np.dtype(np.uint32).num  # of arrays that count the blocks of a stream, and of no others
ALIGNMENT = 16  # bytes, of which kernels read as many at once


def kept(
    function: Function,
    arrays: Sequence[str],
    values: Sequence[str],
    absent: Sequence[str] = (),
    *more: str,
) -> Any:
    """A function of arrays, of which those named in `absent` may be None, and of values: launches
    are kept by the form of all of them, and by more. `general` is the function itself.
    """
    names = [*arrays, *values]
    parts = [(of_array_or_none if x in absent else form_of_array)(x) for x in arrays]
    key = key_text(["wanted.number", *parts, *values, *more], ())

    def begin(*args: Any) -> Any:
        operands = {name: x for name, x in zip(arrays, args) if type(x) is ndarray}
        return *noted_run(lambda: function(*args), names, operands), None

    return straight(names, lambda _: key, function, begin, within=True)


def noted_run(
    run: Callable[[], Any], parameters: Sequence[str], operands: Mapping[str, Array],
    opening: str = "pass", closing: Callable[[], str] = lambda: "pass", own: int | None = None,
) -> tuple[Any, Function | None]:  # fmt: skip
    """What `run()` answers, and a function of `parameters` that launches the same kernels for
    operands of the same form: None where they cannot be known from what was launched.

    It must hand its kernels whole operands, and write to new arrays by nothing but its kernels and
    products: what else it did would be left out the next time. What they read, and neither is an
    operand nor was written by one of them, shows that, and so do results of something else. See
    `launches_of` for the rest; `closing` is asked when the run is over. The first `own` results
    have memory of their own, or all of them; the others live as long as one another.
    """
    before, noted.calls = noted.calls, []
    try:
        results = run()
        calls = noted.calls
    finally:
        noted.calls = before
    if results is None or not calls or None in calls:
        return results, None
    notes = _Notes(operands, calls, results)
    if not notes.can_be_kept():
        return results, None
    return results, notes.again(parameters, opening, closing(), own)


class _Notes:
    """What a run of a row has launched, for which operands, and what it answered.

    Arrays are told apart by where they begin; those that were noted are alive, and so are their
    addresses.
    """

    def __init__(
        self, operands: Mapping[str, Array], calls: Sequence[NotedCall], results: Any
    ) -> None:
        self.operands, self.calls = operands, calls
        self.is_tuple = isinstance(results, tuple)
        self.results = results if self.is_tuple else (results,)
        self.begins = {x.data.ptr: x for x in operands.values()}
        self.new: dict[int, list[Array]] = {}  # by where they begin
        for call in calls:
            for x in _arrays(call.arrays):
                if x.data.ptr not in self.begins and x.dtype.num != COUNTERS:
                    self.new.setdefault(x.data.ptr, []).append(x)

    def can_be_kept(self) -> bool:
        operands = list(self.operands.values())
        if not all(x.size for x in operands) or len(self.begins) < len(operands):
            return False  # one array in two places: the next time they may be two
        if any(begin % ALIGNMENT for begin in self.begins):
            return False  # the kernels are those for such addresses
        return self._are_whole() and self._reads_known() and self._answers_known()

    def _are_whole(self) -> bool:
        """Whether no array is a part of another one, but those that one function made."""
        together = {x.data.ptr for call in self.calls if type(call.what) is NewArrays
                    for x in call.arrays}  # fmt: skip
        new = [{_span(x) for x in several} for several in self.new.values()]
        spans = [*map(_span, self.operands.values()), *chain.from_iterable(new)]
        return all(len(several) == 1 for several in new) and not any(
            low < place < high and not (low in together and place in together)
            for place in self.new for low, high in spans
        )  # fmt: skip

    def _reads_known(self) -> bool:
        """Whether all that is read are operands, or what was written before."""
        written = set(self.begins)
        for call in self.calls:
            if any(x.data.ptr not in written for x in _arrays(call.read)):
                return False
            if type(call.what) is not NewArrays:
                written.update(x.data.ptr for x in _arrays(call.arrays))
        return True

    def _answers_known(self) -> bool:
        """Whether all results are operands, as they are, or all of new arrays, each in one form."""
        shown = dict(self.begins)
        for x in self.results:
            if x is None:
                continue
            place = x.data.ptr
            is_whole = place in self.new and _span(self.new[place][0]) == _span(x)
            if shown.setdefault(place, x) is not x or place not in self.begins and not is_whole:
                return False
        return True

    def _forms(self, names: dict[int, str]) -> dict[str, Any]:
        """New arrays, or who makes them, by the names that they are given here."""
        forms: dict[str, Any] = {}
        for call in self.calls:
            if type(call.what) is NewArrays:
                several = [f"z{len(names) + k}" for k, _ in enumerate(call.arrays)]
                names.update(zip([x.data.ptr for x in call.arrays], several))
                forms[", ".join(several)] = call.what.make
        shown = {x.data.ptr: x for x in self.results if x is not None}
        for place, several in self.new.items():
            if place not in names:
                x = shown.get(place, several[0])
                strides = None if x._c_contiguous else x.strides
                name = names[place] = f"y{len(names)}"
                forms[name] = form_of(x.shape, x.dtype, strides)
        return forms

    def again(
        self, parameters: Sequence[str], opening: str, closing: str, own: int | None
    ) -> Function:
        names = {x.data.ptr: name for name, x in self.operands.items()}
        forms = self._forms(names)
        starts: list[Start | LibraryCall] = []
        for what, arrays, _ in self.calls:
            places = [_address(x, names) for x in arrays]
            if type(what) is tuple:
                kernel, grid, block, tail = what
                starts.append(Start(kernel, grid, block, places, tail))
            elif type(what) is not NewArrays:
                starts.append(LibraryCall(what, places))
        answer = ", ".join("None" if x is None else names[x.data.ptr] for x in self.results)
        answer += "," * (self.is_tuple and len(self.results) == 1)
        apart = {names[x.data.ptr] for x in self.results[:own] if x is not None}
        return launches_of(
            parameters, list(self.operands), forms, starts, answer, ALIGNMENT, opening, closing,
            together=[name for name in forms if name not in apart], tickets=tickets_of_stream,
            waiting=waiting,
        )  # fmt: skip


def _arrays(several: Sequence[Array | None]) -> Iterator[Array]:
    return (x for x in several if x is not None and x.size)


def _address(x: Array | None, names: Mapping[int, str]) -> str:
    """Where an array begins, as an expression."""
    if x is None or not x.size:
        return "0"
    return f"at_{names[x.data.ptr]}" if x.data.ptr in names else "tickets().data.ptr"


def _span(x: Array) -> tuple[int, int]:
    """Where an array begins in memory, and ends."""
    steps = [step * (n - 1) for step, n in zip(x.strides, x.shape, strict=True)]
    low = x.data.ptr + sum(step for step in steps if step < 0)
    return low, x.data.ptr + sum(step for step in steps if step > 0) + x.itemsize
