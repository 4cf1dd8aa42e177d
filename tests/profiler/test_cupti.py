"""Proves on a stand-in for CUPTI that each kernel finds the op, or the node, that launched it."""

from __future__ import annotations

import enum
import json
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cugrad
from cugrad import backends
from cugrad.autograd import mode, profiler
from cugrad.profiler import autograd_profile, correlate
from cugrad.profiler.correlation.joining import Correlation, Correlator
from cugrad.profiler.nvidia import cupti
from cugrad.profiler.traces import files

pytestmark = pytest.mark.host_only


class Kind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    EXTERNAL_CORRELATION = 39


class External(enum.IntEnum):
    CUSTOM0 = 3


class Fake:
    """The part of cupti-python in use; `launch` is what a kernel's launch would be."""

    ActivityKind, ExternalCorrelationKind = Kind, External

    def __init__(self) -> None:
        self.enabled: set[int] = set()
        self.stack: list[int] = []
        self.records: list[Any] = []
        self.deepest = 0
        self._clock, self._number = count(1000, 10).__next__, count(1).__next__

    def get_timestamp(self) -> int:
        return self._clock()

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        size, most = requested()
        assert size >= 1 << 20 and most == 0
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        assert kind == External.CUSTOM0
        self.stack.append(number)
        self.deepest = max(self.deepest, len(self.stack))

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self.stack.pop()

    def activity_flush_all(self, flag: int) -> None:
        self.completed(self.records)
        for each in self.records:  # CUPTI fills the memory again
            vars(each).clear()
        self.records = []

    def launch(self, kind: Kind, name: str = "", us: int = 1) -> None:
        number, start = self._number(), 1_000_000 + self._clock()
        self.records.append(SimpleNamespace(kind=Kind.DRIVER, correlation_id=number))
        if self.stack:
            self.records.append(
                SimpleNamespace(
                    kind=Kind.EXTERNAL_CORRELATION, correlation_id=number,
                    external_id=self.stack[-1], external_kind=External.CUSTOM0,
                )
            )  # fmt: skip
        self.records.insert(  # before its correlation: the order is not promised
            0,
            SimpleNamespace(
                kind=kind, name=name, start=start, end=start + us * 1000, correlation_id=number,
                device_id=0, stream_id=7, bytes=64, copy_kind=2, src_kind=3, dst_kind=2,
            ),
        )  # fmt: skip


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(cupti, "_library", lambda: made)
    return made


class Kernel(cugrad.autograd.Function):
    """An op that launches a kernel, and whose backward launches another one."""

    @staticmethod
    def forward(ctx: Any, x: Any, fake: Fake) -> Any:
        ctx.fake = fake
        fake.launch(Kind.CONCURRENT_KERNEL, "forward_kernel", 5)
        fake.launch(Kind.MEMSET)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        ctx.fake.launch(Kind.CONCURRENT_KERNEL, "backward_kernel", 3)
        ctx.fake.launch(Kind.MEMCPY, us=2)
        return g * 2, None


def test_each_kernel_finds_its_op(fake: Fake) -> None:
    x = cugrad.ones(3, requires_grad=True)
    with cupti.trace_kernels() as trace:
        assert Kind.CONCURRENT_KERNEL in fake.enabled and Kind.DRIVER in fake.enabled
        y = Kernel.apply(x, fake)
        fake.launch(Kind.CONCURRENT_KERNEL, "loose", 100)
        y.sum().backward()
    assert not fake.enabled and not fake.stack and not mode.state.observers
    row = trace.correlate().row("Kernel")
    assert (row.forward.kernels, row.forward.kernel_us) == (2, 6.0)
    assert (row.backward.kernels, row.backward.kernel_us) == (1, 3.0)
    assert (row.backward.copies, row.backward.copy_bytes) == (1, 64)
    assert row.nodes == {"KernelBackward": 1}
    assert [each.name for each in trace.outside] == ["loose"]
    averages = {each.key: each for each in trace.events.key_averages()}
    assert averages["Kernel"].self_device_time_total == 6.0
    assert averages["(outside ranges)"].self_device_time_total == 100.0
    kernels = [each for span in trace.spans for each in span.activities]
    assert "Memcpy DtoH (Device -> Pinned)" in {each.name for each in kernels}


def test_entered_again_it_starts_anew(fake: Fake) -> None:
    trace = cupti.trace_kernels()
    for _ in range(2):
        with trace:
            Kernel.apply(cugrad.ones(3), fake)
        assert trace.correlate().row("Kernel").forward.kernels == 2
    with trace, pytest.raises(RuntimeError, match="one client at a time"), cupti.trace_kernels():
        pass


def test_an_exception_inside_an_op(fake: Fake) -> None:
    with cupti.trace_kernels() as trace:
        with pytest.raises(RuntimeError):
            cugrad.ones(2) + cugrad.ones(3)
        Kernel.apply(cugrad.ones(3), fake)
    assert not fake.stack
    assert trace.correlate().row("Kernel").forward.kernels == 2


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    cupti._library.cache_clear()
    with pytest.raises(ImportError, match="pip install cupti-python"), cupti.trace_kernels():
        pass
    assert not mode.state.observers


def test_without_a_driver(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int) -> None:
        raise Exception("CUDA driver is not found")

    monkeypatch.setattr(fake, "activity_enable", refuse)
    with pytest.raises(RuntimeError, match="CUDA driver is not found"), cupti.trace_kernels():
        pass
    assert not mode.state.observers
    assert cupti.trace_kernels._active is None


def test_a_profile_has_the_kernels_themselves(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend = backends.get("cpu")
    monkeypatch.setattr(autograd_profile, "usable", lambda device: device)
    monkeypatch.setattr(autograd_profile.backends, "get", lambda name: backend)
    x = cugrad.ones(2, device="cpu", requires_grad=True)
    for use_cpu in (True, False):
        with profiler.profile(use_device="cuda", use_kineto=True, use_cpu=use_cpu) as prof:
            Kernel.apply(x, fake).sum().backward()
        events = prof.function_events
        kernels = [event.name for event in events if event.device_type.name == "CUDA"]
        assert sorted(kernels) == [
            "Memcpy DtoH (Device -> Pinned)", "Memset (Device)", "backward_kernel", "forward_kernel"
        ]  # fmt: skip
        averages = {each.key: each for each in prof.key_averages()}
        assert averages["forward_kernel"].device_time_total == pytest.approx(5)
        assert set(averages) > {"Kernel", "KernelBackward"} if use_cpu else len(averages) == 4
    with profiler.profile(use_device="cuda", use_kineto=True) as prof:
        Kernel.apply(x, fake).sum().backward()
        fake.launch(Kind.CONCURRENT_KERNEL, "of no op", 3)
    found = {event.name: event for event in prof.function_events}
    assert [k.name for k in found["Kernel"].kernels] == ["forward_kernel", "Memset (Device)"]
    assert found["KernelBackward"].device_time_total == pytest.approx(5)
    assert found["forward_kernel"].linked_correlation_id == found["Kernel"].id
    assert "Self CUDA time total: 14.000us" in prof.key_averages().table()
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    lanes = {(e["pid"], e["tid"]) for e in trace if e.get("cat") in ("kernel", "gpu_memcpy")}
    assert lanes == {("CUDA 0", 7)}
    spans = files.spans_of_file(tmp_path / "trace.json")
    next(spans)
    adding = Correlator()
    for each in spans:
        assert not isinstance(each, str)
        adding.add(each)
    assert str(Correlation(adding.rows.values())) == str(correlate(prof.function_events))
