"""Programs with one step left out: the simulated device finds each, under every schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.errors import RaceError
from cugrad.memory import offload

Program = Callable[["Device", bool], Any]  # the second argument: whether the step is there
N = 256


class Device:
    """The simulated device in few words."""

    def __init__(self) -> None:
        self.b: Any = backends.get("simulated")
        self.xp = self.b.xp
        self.compute = self.b.current_stream()
        self.out = self.named("outward")
        self.back = self.named("inward")

    def named(self, name: str) -> Any:
        """A new stream that errors call by a name."""
        stream: Any = backends.get("simulated").stream()
        stream.name = name
        return stream

    def full(self, value: float, n: int = N) -> Any:
        return self.xp.full((n,), value, np.float32)

    def pinned(self, n: int = N) -> Any:
        return self.b.empty_pinned((n,), np.dtype(np.float32))

    def copy(self, dst: Any, src: Any, stream: Any) -> Any:
        """Queues a copy; the event behind it."""
        self.b.copy_async(dst, src, stream)
        return stream.record_event()

    def follows(self, stream: Any, other: Any) -> None:
        """`stream` waits for all that `other` has queued."""
        stream.wait_event(other.record_event())

    def offloaded(self, value: float) -> tuple[Any, Any, Any]:
        """(source, pinned copy of it, event of the copy), rightly made."""
        x, host = self.full(value), self.pinned()
        self.follows(self.out, self.compute)
        return x, host, self.copy(host, x, self.out)


PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


# Copies to the host -------------------------------------------------------------------------------


@program
def copy_out_waits_for_the_kernel(d: Device, ok: bool) -> Any:
    x, host = d.full(7), d.pinned()
    if ok:
        d.follows(d.out, d.compute)
    d.copy(host, x, d.out).synchronize()
    return host[0]


@program
def event_is_recorded_after_the_kernel(d: Device, ok: bool) -> Any:
    x, host = d.full(1), d.pinned()
    early = d.compute.record_event()
    x += 6
    d.out.wait_event(d.compute.record_event() if ok else early)
    d.copy(host, x, d.out).synchronize()
    return host[0]


@program
def event_of_the_right_stream(d: Device, ok: bool) -> Any:
    x, host = d.full(7), d.pinned()
    d.follows(d.out, d.compute if ok else d.back)
    d.copy(host, x, d.out).synchronize()
    return host[0]


@program
def the_right_stream_waits(d: Device, ok: bool) -> Any:
    x, host = d.full(7), d.pinned()
    d.follows(d.out if ok else d.back, d.compute)
    d.copy(host, x, d.out).synchronize()
    return host[0]


@program
def an_event_that_was_recorded(d: Device, ok: bool) -> Any:
    x, host, event = d.full(7), d.pinned(), d.b.event()
    if ok:
        event.record(d.compute)
    d.out.wait_event(event)  # of one never recorded: nothing, as on CUDA
    d.copy(host, x, d.out).synchronize()
    return host[0]


@program
def an_event_recorded_before_it_is_waited_for(d: Device, ok: bool) -> Any:
    x, host, event = d.full(7), d.pinned(), d.b.event()
    if ok:
        event.record(d.compute)
    d.out.wait_event(event)
    event.record(d.compute)
    d.copy(host, x, d.out).synchronize()
    return host[0]


@program
def host_reads_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        copied.synchronize()
    return host[0] + 0


@program
def host_sums_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        d.out.synchronize()
    return host.sum() / N


@program
def host_copies_with_numpy_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        d.b.synchronize()
    return np.concatenate([host, host])[N]


@program
def host_waits_for_the_right_stream(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    (d.out if ok else d.compute).synchronize()
    return host[3] + 0


@program
def host_waits_for_the_second_copy_too(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(3)
    y = d.full(7)
    d.follows(d.out, d.compute)
    again = d.copy(host, y, d.out)
    (again if ok else copied).synchronize()
    return host[0] + 0


@program
def source_is_changed_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        d.compute.wait_event(copied)
    x *= 2
    copied.synchronize()
    return host[0]


@program
def source_is_assigned_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        copied.synchronize()
    x[4:8] = 0.0
    d.b.synchronize()
    return host[0]


@program
def source_is_freed_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        d.compute.wait_event(copied)
    del x
    y = d.full(5)  # gets the memory of x
    copied.synchronize()
    return host[0] + 0 * float(y[0])


@program
def temporary_is_kept_until_the_copy(d: Device, ok: bool) -> Any:
    x, host = d.full(3.5), d.pinned()
    kept = x * 2
    d.follows(d.out, d.compute)
    copied = d.copy(host, kept, d.out)
    if not ok:
        del kept
    y = x * 3
    copied.synchronize()
    return host[0] + 0 * float(y[0])


@program
def out_argument_waits(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        d.compute.wait_event(copied)
    d.xp.add(d.full(1), 1, out=x)
    d.b.synchronize()
    return host[0]


# Pinned memory ------------------------------------------------------------------------------------


@program
def pinned_is_reused_after_its_last_use(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    target = d.xp.empty(N, np.float32)
    d.follows(d.back, d.compute)
    d.back.wait_event(copied)
    arrived = d.copy(target, host, d.back)
    y = d.full(9)
    d.follows(d.out, d.compute)
    if ok:
        d.out.wait_event(arrived)
    d.copy(host, y, d.out)
    d.compute.wait_event(arrived)
    d.b.synchronize()
    return float(target[0])


@program
def one_staging_buffer_serves_two_copies(d: Device, ok: bool) -> Any:
    stage = d.pinned()
    stage[...] = 7
    a, b = d.xp.empty(N, np.float32), d.xp.empty(N, np.float32)
    first = d.copy(a, stage, d.back)
    if ok:
        first.synchronize()
    stage[...] = 8
    d.copy(b, stage, d.back)
    d.b.synchronize()
    return float(a[0])


@program
def two_streams_fill_one_buffer(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(3)
    y = d.full(7)
    d.follows(d.back, d.compute)
    if ok:
        d.back.wait_event(copied)
    d.copy(host, y, d.back)
    d.b.synchronize()
    return host[0]


@program
def halves_that_overlap(d: Device, ok: bool) -> Any:
    x, host = d.full(7), d.pinned(2 * N)
    d.follows(d.out, d.compute)
    d.follows(d.back, d.compute)
    d.copy(host[:N], x, d.out)
    start = N if ok else N - 1
    d.copy(host[start : start + N], x, d.back)
    d.b.synchronize()
    return host[0]


@program
def slab_tenant_waits(d: Device, ok: bool) -> Any:
    slab = d.b.empty_pinned((4 * N,), np.dtype(np.uint8))
    x = d.full(7)
    d.follows(d.out, d.compute)
    copied = d.copy(slab, x, d.out)
    (copied if ok else d.compute.record_event()).synchronize()
    return slab.view(np.float32)[5] + 0


@program
def pinned_is_freed_after_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    if ok:
        copied.synchronize()
    del host  # nothing else refers to it: it is freed here
    return float(d.full(7)[0])  # the destructor's finding is raised by the next operation


@program
def pinned_source_is_freed_after_the_copy(d: Device, ok: bool) -> Any:
    stage, x = d.pinned(), d.xp.empty(N, np.float32)
    stage[...] = 7
    d.follows(d.back, d.compute)
    arrived = d.copy(x, stage, d.back)
    d.compute.wait_event(arrived)
    if ok:
        arrived.synchronize()
    del stage
    return float(x[0])


@program
def host_fills_after_the_copy(d: Device, ok: bool) -> Any:
    stage, x = d.pinned(), d.xp.empty(N, np.float32)
    stage.fill(7)
    arrived = d.copy(x, stage, d.back)
    d.compute.wait_event(arrived)
    if ok:
        arrived.synchronize()
    np.copyto(stage, 0)
    return float(x[0])


@program
def host_does_not_increment_in_flight(d: Device, ok: bool) -> Any:
    stage, x = d.pinned(), d.xp.empty(N, np.float32)
    stage[...] = 7
    d.copy(x, stage, d.back)
    if ok:
        d.back.synchronize()
    stage += 1
    d.b.synchronize()
    return float(x[0])


# Copies to the device -----------------------------------------------------------------------------


@program
def compute_waits_for_the_copy_in(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    target = d.xp.empty(N, np.float32)
    d.follows(d.back, d.compute)
    d.back.wait_event(copied)
    arrived = d.copy(target, host, d.back)
    if ok:
        d.compute.wait_event(arrived)
    return float((target * 1)[0])


@program
def copy_in_waits_for_the_copy_out(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    target = d.xp.empty(N, np.float32)
    d.follows(d.back, d.compute)
    if ok:
        d.back.wait_event(copied)
    d.compute.wait_event(d.copy(target, host, d.back))
    return float(target[0])


@program
def target_memory_is_free(d: Device, ok: bool) -> Any:
    """An empty array's block may still be in use, on the stream that it came from."""
    x, host, copied = d.offloaded(7)
    d.compute.wait_event(copied)
    old = d.full(1)
    later = old + 1
    del old
    target = d.xp.empty(N, np.float32)  # the block of old
    if ok:
        d.follows(d.back, d.compute)
    d.back.wait_event(copied)
    d.compute.wait_event(d.copy(target, host, d.back))
    return float(target[0]) + 0 * float(later[0])


@program
def arrival_is_recorded_behind_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(7)
    target = d.xp.empty(N, np.float32)
    d.follows(d.back, d.compute)
    d.back.wait_event(copied)
    early = d.back.record_event()
    arrived = d.copy(target, host, d.back)
    d.compute.wait_event(arrived if ok else early)
    return float(target[0])


@program
def target_is_kept_until_the_copy(d: Device, ok: bool) -> Any:
    x, host, copied = d.offloaded(5)
    target = d.xp.empty(N, np.float32)
    d.follows(d.back, d.compute)
    d.back.wait_event(copied)
    arrived = d.copy(target, host, d.back)
    if ok:
        d.compute.wait_event(arrived)
    del target
    return float(d.full(7)[0])  # in the memory of the target, which is being written


@program
def reader_on_a_third_stream_waits(d: Device, ok: bool) -> Any:
    x, third, host = d.full(7), d.b.stream(), d.pinned()
    y = d.xp.empty(N, np.float32)
    d.follows(d.back, d.compute)
    moved = d.copy(y, x, d.back)
    third.wait_event(moved if ok else d.compute.record_event())
    d.copy(host, y, third).synchronize()
    return host[0]


@program
def writer_waits_for_both_readers(d: Device, ok: bool) -> Any:
    x, host, first = d.offloaded(7)
    other = d.pinned()
    d.follows(d.back, d.compute)
    second = d.copy(other, x, d.back)
    d.compute.wait_event(first)
    if ok:
        d.compute.wait_event(second)
    x[...] = 0.0
    d.b.synchronize()
    return other[0]


# Kernels on side streams --------------------------------------------------------------------------


@program
def kernel_on_a_side_stream_waits(d: Device, ok: bool) -> Any:
    x = d.full(3.5)
    if ok:
        d.follows(d.back, d.compute)
    with d.b.use_stream(d.back):
        y = x * 2
    d.follows(d.compute, d.back)
    return float(y[0])


@program
def result_of_a_side_stream_is_waited_for(d: Device, ok: bool) -> Any:
    x = d.full(3.5)
    d.follows(d.back, d.compute)
    with d.b.use_stream(d.back):
        y = x * 2
    if ok:
        d.follows(d.compute, d.back)
    return float((y + 0)[0])


@program
def reused_memory_of_a_side_stream(d: Device, ok: bool) -> Any:
    """Memory that a side stream only read goes back to the stream that it came from."""
    x = d.full(3.5)
    d.follows(d.back, d.compute)
    with d.b.use_stream(d.back):
        y = x * 2
    if ok:
        d.follows(d.compute, d.back)
    del x
    z = d.full(1)
    d.b.synchronize()
    return float(y[0]) + 0 * float(z[0])


@program
def columns_are_told_apart(d: Device, ok: bool) -> Any:
    x = d.xp.zeros((16, 8), np.float32)
    left, right = d.xp.full(16, 7, np.float32), d.xp.full(16, 9, np.float32)
    d.follows(d.back, d.compute)
    x[:, 0] = left
    with d.b.use_stream(d.back):
        x[:, 1 if ok else 0] = right
    d.b.synchronize()
    return float(x[0, 0])


@program
def tensors_of_two_streams(d: Device, ok: bool) -> Any:
    x = cugrad.full((N,), 3.5, device="simulated")
    if ok:
        d.follows(d.back, d.compute)
    with d.b.use_stream(d.back):
        y = x * 2
    d.back.synchronize()
    return y[0].item()


# The tests ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with simulated.configured(simulated.H200):
        simulated.reset()
        yield
        simulated.MACHINE.freed_pinned.clear()
        simulated.reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fault_is_found_under_every_schedule(name: str) -> None:
    for policy in simulated.POLICIES:
        for seed in range(10):
            with simulated.configured(policy=policy, seed=seed):
                with pytest.raises(RaceError) as caught:
                    PROGRAMS[name](Device(), False)
                error = caught.value
                assert error.first and error.second and error.missing
                for part in (error.first, error.second, error.first_stream, error.second_stream):
                    assert part in str(error)
                simulated.MACHINE.freed_pinned.clear()


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_the_step_there_is_no_false_alarm(name: str) -> None:
    for policy in simulated.POLICIES:
        for seed in range(50 if policy == "random" else 2):
            with simulated.configured(policy=policy, seed=seed):
                assert PROGRAMS[name](Device(), True) == 7, (policy, seed)


READS: dict[str, Callable[[Any], Any]] = {
    "copy": lambda h: h.copy(), "astype": lambda h: h.astype(float), "item": lambda h: h.item(0),
    "tolist": lambda h: h.tolist(), "tobytes": lambda h: h.tobytes(), "sum": lambda h: h.sum(),
    "mean": lambda h: h.mean(), "max": lambda h: h.max(), "any": lambda h: h.any(),
    "argmax": lambda h: h.argmax(), "dot": lambda h: h.dot(np.ones(N)), "take": lambda h: h.take(0),
    "nonzero": lambda h: h.nonzero(), "float": lambda h: float(h[:1].reshape(())),
    "contains": lambda h: 7.0 in h, "flatten": lambda h: h.flatten(), "repr": repr, "str": str,
    "index": lambda h: h[0], "ufunc": lambda h: h + 1, "pickle": lambda h: h.__reduce__(),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_the_host_reads_what_nobody_writes(name: str) -> None:
    """In whatever way: beside a copy from it, which reads it too, but not beside one to it."""
    with simulated.configured(policy="latest", seed=0):
        simulated.reset()
        d = Device()
        x, host, copied = d.offloaded(7)
        with pytest.raises(RaceError):
            READS[name](host)
        copied.synchronize()
        READS[name](host)
        d.copy(x, host, d.out)
        READS[name](host)
        d.b.synchronize()


def test_there_are_thirty() -> None:
    assert len(PROGRAMS) >= 30


def test_the_error_says_what_is_missing() -> None:
    with pytest.raises(RaceError) as caught:
        host_reads_after_the_copy(Device(), False)
    assert "'host read' on 'host' reads bytes 0:1024 of pinned buffer" in str(caught.value)
    assert caught.value.first.startswith("copy_async d2h 1024 bytes")
    assert "the host must wait for an event recorded on 'outward'" in caught.value.missing
    with pytest.raises(RaceError, match="only up to operation"):
        event_is_recorded_after_the_kernel(Device(), False)


def trained(skip: int) -> tuple[int, Any]:
    """Steps with offloading, one of whose waits is left out: how many there were, the gradient."""
    count, machine = 0, simulated.MACHINE

    def wait(stream: Any, event: Any) -> None:
        nonlocal count
        count += 1
        if count - 1 != skip:
            type(machine).wait(machine, stream, event)

    machine.wait = wait  # type: ignore[method-assign]
    try:
        cugrad.manual_seed(0)
        w = cugrad.rand(16, 16, device="simulated", requires_grad=True)
        for _ in range(2):
            with offload(min_bytes=0, keep_last=0, backlog=0, lookahead=2048):
                y = ((w @ w).tanh() @ w).sigmoid().sum()
            y.backward()
        assert w.grad is not None
        found = w.grad.cpu().tolist()
        machine.synchronize()
        return count, found
    finally:
        del machine.wait
        machine.freed_pinned.clear()
        simulated.reset()


@pytest.mark.parametrize("policy", simulated.POLICIES)
def test_a_wait_of_the_library_is_missed_or_was_implied_by_others(policy: str) -> None:
    with simulated.configured(policy=policy, seed=1):
        count, wanted = trained(-1)
        races = 0
        for skip in range(count):
            try:
                assert trained(skip)[1] == wanted, f"wait {skip}: wrong, and nobody noticed"
            except RaceError:
                races += 1
        assert races >= 8
