"""Who lies in which memory is known, whatever comes between two lines of the accounts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cugrad.memory.states import roots
from cugrad.memory.states.roots import ROOTS, lies_in, lies_nowhere

LINES = range(1, 8)  # no function of the module has more


def before_line(wanted: int, call: Callable[[], None], then: Callable[[], None]) -> None:
    """Calls something before a line of the module, counted from the first that runs in `call`."""
    count = 0

    def local(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == wanted:
                sys.settrace(None)
                frame.f_trace = None
                then()
        return local

    def watch(frame: Any, event: str, arg: Any) -> Any:
        return local if frame.f_code.co_filename == roots.__file__ else None

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        call()
    finally:
        sys.settrace(before)


def homes(number: int) -> list[Any]:
    class Home(SimpleNamespace):
        __hash__ = object.__hash__

    return [Home(root=0) for _ in range(number)]


def interrupt() -> None:
    raise KeyboardInterrupt


def comes(home: Any, array: Any) -> None:
    lies_in(home, array)


def goes(home: Any, array: Any) -> None:
    lies_nowhere(home)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("act", [comes, goes])
def test_after_an_interrupt_no_entry_is_left_behind(act: Any, others: int, line: int) -> None:
    array = np.empty(4)
    home, *rest = homes(1 + others)
    for each in rest if act is comes else (home, *rest):
        lies_in(each, array)
    try:
        before_line(line, partial(act, home, array), interrupt)
    except KeyboardInterrupt:
        pass
    assert all(each in ROOTS[id(array)] for each in rest)
    for each in (home, *rest):
        lies_nowhere(each)
    assert id(array) not in ROOTS


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("act", [comes, goes])
def test_the_collector_takes_one_out_between_two_lines(act: Any, others: int, line: int) -> None:
    array = np.empty(4)
    home, gone, *rest = homes(1 + others)
    for each in (gone, *rest) if act is comes else (home, gone, *rest):
        lies_in(each, array)
    before_line(line, partial(act, home, array), partial(lies_nowhere, gone))
    lies_nowhere(gone)  # if that line did not run
    here = [*rest, home] if act is comes else rest
    assert set(ROOTS.get(id(array), {})) == set(here)
    for each in here:
        lies_nowhere(each)
    assert id(array) not in ROOTS
