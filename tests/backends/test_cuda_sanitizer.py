"""The sanitizer over the CuPy backend: on a GPU, and over the fake CUDA where there is none."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.cuda import sanitizer
from cugrad.errors import RaceError
from cugrad.memory import save_on_cpu
from tests.support import fake_cuda

HAS_CUDA = backends.is_usable("cuda")
on_cuda = pytest.mark.skipif(not HAS_CUDA, reason="no usable GPU, and no fake one")
Program = Callable[[Any, bool], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def sent(b: Any, waits: bool = True) -> tuple[Any, Any, Any, Any]:
    """(source, pinned target, stream, event) of a copy to the host."""
    stream = b.stream()
    x = b.xp.full((64,), 7, np.float32)
    host = b.empty_pinned((64,), np.dtype(np.float32))
    if waits:
        stream.wait_event(b.current_stream().record_event())
    b.copy_async(host, x, stream)
    return x, host, stream, stream.record_event()


@program
def copy_waits_for_the_kernel(b: Any, ok: bool) -> None:
    *kept, event = sent(b, ok)
    event.synchronize()


@program
def event_is_recorded_after_the_kernel(b: Any, ok: bool) -> None:
    stream, host = b.stream(), b.empty_pinned((64,), np.dtype(np.float32))
    early = b.current_stream().record_event()
    x = b.xp.full((64,), 7, np.float32)
    stream.wait_event(b.current_stream().record_event() if ok else early)
    b.copy_async(host, x, stream)
    stream.synchronize()


@program
def source_is_written_after_the_copy(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    if ok:
        b.current_stream().wait_event(event)
    b.xp.copyto(x, b.xp.zeros((64,), np.float32))
    stream.synchronize()


@program
def kernel_waits_for_the_copy_in(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    back = b.stream()
    target = b.xp.empty((64,), np.float32)
    back.wait_event(event)
    back.wait_event(b.current_stream().record_event())
    b.copy_async(target, host, back)
    if ok:
        b.current_stream().wait_event(back.record_event())
    b.xp.sum(target)
    b.synchronize()


@program
def result_goes_to_the_host_after_the_copy(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    back, target = b.stream(), b.xp.empty((64,), np.float32)
    back.wait_event(event)
    back.wait_event(b.current_stream().record_event())
    b.copy_async(target, host, back)
    if ok:
        b.current_stream().wait_event(back.record_event())
    b.to_host(target)
    b.synchronize()


@program
def copy_in_waits_for_the_copy_out(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    back, target = b.stream(), b.xp.empty((64,), np.float32)
    if ok:
        back.wait_event(event)
    b.copy_async(target, host, back)
    b.synchronize()


@program
def staging_buffer_serves_one_copy_at_a_time(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    other = b.stream()
    if ok:
        other.wait_event(event)
    b.copy_async(host, x, other)
    b.synchronize()


@program
def pinned_outlives_the_copy(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    if ok:
        stream.synchronize()
    del host
    gc.collect()
    b.xp.zeros((1,), np.float32)


@program
def host_reads_after_the_copy(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    if ok:
        while not event.query():
            pass
    sanitizer.touched_by_host(host)
    stream.synchronize()


@program
def own_kernels_are_told_of(b: Any, ok: bool) -> None:
    x, host, stream, event = sent(b)
    if ok:
        event.wait(b.current_stream())
    x *= 2  # an operator of the array: not seen
    sanitizer.writes(x, name="x *= 2")
    stream.synchronize()


@on_cuda
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_missing_step_is_found(name: str) -> None:
    b = backends.get("cuda")
    with pytest.raises(RaceError), sanitizer.check():
        PROGRAMS[name](b, False)
    b.synchronize()
    assert not sanitizer.is_enabled()


@on_cuda
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_false_alarm(name: str) -> None:
    b = backends.get("cuda")
    with sanitizer.check():
        PROGRAMS[name](b, True)
    b.synchronize()


@on_cuda
def test_offloading_is_clean_and_nothing_stays_behind() -> None:
    b = backends.get("cuda")
    before = b.copy_async, type(b.current_stream()).wait_event, b.xp
    w = cugrad.rand(8, 8, device="cuda", requires_grad=True)
    with sanitizer.check():
        for _ in range(3):
            with save_on_cpu(pin_memory=True):
                y = (w @ w).tanh().sum()
            y.backward()
    assert (b.copy_async, type(b.current_stream()).wait_event, b.xp) == before


@pytest.mark.skipif(HAS_CUDA, reason="the tests above have run")
def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert f"{2 * len(PROGRAMS) + 1} passed" in fake_cuda.passed(__file__)
