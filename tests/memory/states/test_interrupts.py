"""After an interrupt anywhere in a step each parameter, with its states, is before it or behind."""

from __future__ import annotations

import gc
import random
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import CodeType
from typing import Any

import pytest

import cugrad
from cugrad.memory.offloading.engine import _engines
from cugrad.memory.states.placed import HOMES
from cugrad.memory.states.roots import ROOTS
from cugrad.memory.states.steps import home_of
from tests.combinations.interrupts import Ways
from tests.memory.states.training import PLACES, Training, same, values_of

TIMES = 6
ROOMS = ("memory", "slab", "optim", "threads")
DRIVER = ("simulated", "allocations")  # what stands for the device, and its accounts
LOST = ("__del__", "_lose")  # what is raised in a destructor is lost
SETTINGS = ("Adam", {"lr": 0.1})


ways_of = cache(Ways)


@cache
def is_in_rooms(code: CodeType) -> bool:
    path = code.co_filename
    inside = not any(part in path for part in ("tests", *DRIVER))
    return inside and any(room in path for room in ROOMS)


def is_lost(frame: Any) -> bool:
    while frame is not None and frame.f_code.co_name not in LOST:
        frame = frame.f_back
    return frame is not None


@contextmanager
def interrupted(line: int, within: str = "") -> Iterator[list[int]]:
    """KeyboardInterrupt before the line of this number that runs in the rooms, or in functions
    `within` them, but for the end of a `with`, which none has; how many ran. In a destructor it
    waits for that to end.
    """
    count = [0]

    def local(frame: Any, event: str, arg: Any) -> Any:
        if event == "line" and ways_of(frame.f_code).may[frame.f_lasti]:
            count[0] += 1
            if 0 < line <= count[0] and not is_lost(frame):
                raise KeyboardInterrupt  # which ends the tracing, too
        return local

    def watch(frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        return local if within in ("", code.co_name) and is_in_rooms(code) else None

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield count
    finally:
        sys.settrace(before)


def placed(place: str, line: int, within: str = "") -> tuple[Any, list[Any], Any, list[Any], int]:
    """A training whose second step is interrupted, what it had then, what was said of it, what it
    had when it was finished, and how many lines ran.
    """
    training = Training(*SETTINGS, (), "simulated")
    options: Any = {**PLACES[place], "min_bytes": 512, "window": "3KiB"}
    with cugrad.memory.offload_states(training.net, training.optimizer, **options) as context:
        training.step(0)
        with interrupted(line, within) as count:
            try:
                training.step(1)
            except KeyboardInterrupt:
                pass
        locks = [engine._lock for engine in _engines.values()]
        locks += [window.lock for window in context._windows.values()]
        assert not any(lock._is_owned() for lock in locks)
        left, told = values_of(training), context.unfinished()
        if told:
            context.finish_step()
        behind = values_of(training)
        training.optimizer.zero_grad()
        training.step(2)
    return training, left, told, behind, count[0]


def steps_of_plain_training() -> list[list[Any]]:
    """What one step and two steps leave."""
    steps = []
    for count in (1, 2):
        training = Training(*SETTINGS, (), "simulated")
        for step in range(count):
            training.step(step)
        steps.append(values_of(training))
    return steps


def check(place: str, line: int, steps: list[list[Any]], within: str = "") -> None:
    """An interrupted step has changed each parameter or not, and says which."""
    training, left, told, behind, _ = placed(place, line, within)
    names = [name for name, _ in training.net.named_parameters()]
    whole = [same(now, after) for now, after in zip(left, steps[1])]
    for now, is_behind, before in zip(left, whole, steps[0]):
        assert is_behind or same(now, before), line
    for step in told:
        assert step.behind == [n for n, is_behind in zip(names, whole) if is_behind], line
        assert step.before == [n for n, is_behind in zip(names, whole) if not is_behind], line
        assert same(behind, steps[1]), line
    if not told:
        assert all(whole) or not any(whole), line
    for param in training.params:
        assert type(param) is cugrad.nn.Parameter and bool(param.isfinite().all()), line


@pytest.mark.parametrize("place", ["all on the host", "states on the host", "all streamed"])
def test_after_an_interrupt_each_parameter_is_whole(place: str) -> None:
    steps = steps_of_plain_training()
    _, left, told, _, lines = placed(place, -1)
    assert same(left, steps[1]) and not told
    # most of the lines are not the optimizer's: half of the times are in the last part of the step
    draw = random.Random(zlib.crc32(place.encode()))
    times = draw.sample(range(1, lines), TIMES // 2) + draw.sample(
        range(lines // 2, lines), TIMES // 2
    )
    for line in times:
        check(place, line, steps)
    gc.collect()
    assert not HOMES and not ROOTS


@pytest.mark.parametrize("place", ["states on the host", "all streamed"])
def test_after_an_interrupt_as_an_array_leaves_each_parameter_is_whole(place: str) -> None:
    """Before each line of the function that empties a field, when it runs first."""
    steps = steps_of_plain_training()
    for line in range(1, 9):
        check(place, line, steps, "vacate")
    gc.collect()
    assert not HOMES and not ROOTS


@pytest.mark.parametrize("is_here", [False, True])
def test_a_change_that_is_put_off_is_made_once_or_never(is_here: bool) -> None:
    """Whatever line of it an interrupt comes before, wherever the gradient is then."""
    net = cugrad.nn.Linear(16, 16).to("simulated")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
    options: Any = {"gradients": "host", "window": "64KiB", "min_bytes": 512}
    with cugrad.memory.offload_states(net, optimizer, **options) as context:
        for line in range(1, 40):
            optimizer.zero_grad()
            net(cugrad.ones(4, 16, device="simulated")).sum().backward()
            gradient, home = net.weight.grad, home_of(net.weight.grad)
            wanted = gradient.tolist()
            home.send()
            if not is_here:
                assert context._windows["gradients"].leave(home)
            for change in range(2):  # the second one comes behind one that is pending
                at = line if change else 0
                with interrupted(at, "change") as count, suppress(KeyboardInterrupt):
                    gradient._change_later(lambda t: t.mul_(2))
            several = [gradient.tolist()]
            context._windows["gradients"].leave(home)
            several.append(gradient.tolist())
            assert several[0] == several[1]
            assert several[0] in [[[n * x for x in row] for row in wanted] for n in (2, 4)]
            if count[0] < line:
                break
    assert line > 8
