"""memory.budget: any plan gives the same bits, a settled one fits, and mistakes are told."""

from __future__ import annotations

import functools
import gc
import os
import random
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.budgeting import context as budgeting
from cugrad.memory.budgeting import planning, rates
from cugrad.memory.budgeting.planning import (
    COMPRESS,
    DISK,
    KEEP,
    OFFLOAD,
    RECOMPUTE,
    Forecaster,
    Plan,
    search,
)
from cugrad.memory.sizes import bytes_of, size
from cugrad.nn import functional as F
from tests.memory.offload import test_conformance as conformance
from tests.memory.offload.cases import CASES
from tests.support import ROOT

# What opens contexts of its own, or hooks that a budget takes the place of, is not for this.
WITHIN = [name for name in CASES if name not in {"hooks_of_one_saved_tensor", "hooks_are_disabled"}]

RATES_OF_DISK = functools.cache(rates.disk)  # of the real one, which is the same in each test


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    gc.freeze()  # for good: what is unfrozen, 50,000 tests and PyTorch, is walked each time
    for name in ("WORK", "MOST"):  # a plan that is good enough
        monkeypatch.setattr(search, name, getattr(search, name) // 10)
    monkeypatch.setattr(rates, "disk", RATES_OF_DISK)
    budgeting._learned.clear()
    rates._rates.clear()
    conformance.forget()
    simulated.seed(0)  # when copies end is drawn, and with it peaks, by some blocks
    yield
    assert not tracemalloc.is_tracing()
    budgeting._learned.clear()
    simulated.reset()


def by_chance(seed: str, places: tuple[str, ...]) -> Any:
    """A planner that draws a placement for each value, in the place of the one that thinks."""
    draw = random.Random(seed)

    def plan(step: Any, limit: int, *, placements: Any) -> Plan:
        drawn = [draw.choice(places) for _ in step.values]
        chosen = [p if p in v.placements else KEEP for p, v in zip(drawn, step.values)]
        return Plan(tuple(chosen), replace(Forecaster(step)(chosen), peak=0), 0)

    return plan


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, "simulated") for name in WITHIN[::3]] + [(name, "cpu") for name in WITHIN[1::6]],
)
def test_any_plan_gives_the_same_bits(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = (KEEP, OFFLOAD, RECOMPUTE, RECOMPUTE) if device != "cpu" else (KEEP, RECOMPUTE)
    monkeypatch.setattr(planning, "plan", by_chance(name, places))
    for k in range(2):  # one is measured, one follows
        how = simulated.configured(policy="random", seed=k) if device != "cpu" else nullcontext()
        with conformance.nothing_leaks(), how:
            with memory.budget("1GB", device=device):
                made = conformance.Run(torch, device, nullcontext)
                found = [conformance.on_numpy(t) for t in CASES[name](made)]
            conformance.assert_same(found, name, f"{name}, step {k}")
            del found, made


def grad_of(x: Any) -> Any:
    return x.grad.cpu().numpy()


class Training:
    """A network of blocks, its optimizer, and the most memory that its steps take."""

    def __init__(self, device: str, layers: int = 6, width: int = 64, batch: int = 256) -> None:
        rng = np.random.default_rng(0)
        self.device, self.backend = device, backends.get(device)
        self.x = torch.tensor(rng.random((batch, width), np.float32), device=device)
        self.weights = [
            torch.tensor(rng.normal(0, 0.1, (width, width)).astype("f"), device=device)
            .requires_grad_()
            for _ in range(layers)
        ]  # fmt: skip
        self.peak = 0

    def loss(self) -> Any:
        h = self.x
        for w in self.weights:
            h = h + F.dropout(F.gelu(F.layer_norm(h, h.shape[-1:]) @ w), 0.1).tanh()
        return h.exp().mean()

    def step(self, saving: Any) -> None:
        self.backend.reset_peak_memory_stats()
        with saving:
            loss = self.loss()
            loss.backward()
        self.peak = self.backend.max_memory_allocated()
        del loss
        with torch.no_grad():
            for w in self.weights:
                assert w.grad is not None
                w -= 0.01 * w.grad
                w.grad = None


def trained(device: str, saving: Callable[[], Any], steps: int) -> tuple[Training, list[Any]]:
    torch.manual_seed(0)
    found = Training(device)
    for _ in range(steps):
        found.step(saving())
    return found, [w.detach().cpu().numpy() for w in found.weights]


@pytest.mark.filterwarnings("ignore:budget")
@pytest.mark.parametrize(
    ("places", "share"),
    [
        ((KEEP, OFFLOAD), 0.6), ((KEEP, RECOMPUTE), 0.75), ((KEEP, OFFLOAD, RECOMPUTE), 0.6),
    ],
)  # fmt: skip
def test_a_settled_step_fits(places: tuple[str, ...], share: float) -> None:
    plain, wanted = trained("simulated", nullcontext, 8)
    limit = int(share * plain.peak)
    last: list[memory.budget] = []

    def saving() -> memory.budget:
        last.append(memory.budget(limit, device="simulated", placements=places))
        return last[-1]

    held, found = trained("simulated", saving, 8)
    assert 0.9 * limit < held.peak <= limit
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()
    report = last[-1].report()
    assert report["peak"] == pytest.approx(held.peak, rel=0.05)  # of when the plan was tried
    assert report["peak_without"] > limit
    assert set(report["placements"]) <= set(places)
    text = str(report)
    assert "limit" in text and places[1] in text and "least" in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    last = memory.budget("1GB", device="simulated")
    trained("simulated", lambda: last, 1)
    last.report().plot(str(tmp_path / "memory.png"))
    assert (tmp_path / "memory.png").stat().st_size > 10_000


@pytest.mark.filterwarnings("ignore:budget")
def test_memory_of_the_host_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """By tracemalloc: with half of the peak, as planned, and the bits are the same."""
    monkeypatch.setattr(search, "MOST", search.FEWEST)  # it slows a planner to a third

    def peak(saving: Callable[[], Any]) -> tuple[int, list[Any]]:
        torch.manual_seed(0)
        training = Training("cpu", batch=1000)
        for _ in range(4):
            tracemalloc.start()
            training.step(saving())
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return most, [w.detach().numpy() for w in training.weights]

    plain, wanted = peak(nullcontext)
    limit = int(0.5 * plain)
    held, found = peak(lambda: memory.budget(limit, device="cpu", placements=(KEEP, RECOMPUTE)))
    assert 0.8 * limit < held <= limit
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()


def test_what_the_first_step_makes_again_is_not_what_an_op_needs() -> None:
    """On the host, where it drops what it saves: all kept, the step takes what it is said to."""
    torch.manual_seed(0)
    training = Training("cpu", layers=8, batch=1000)
    for _ in range(2):
        tracemalloc.start()
        training.step(nullcontext())
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    with memory.budget("1GB", device="cpu") as plan:
        training.loss().backward()
    assert plan.report()["peak_without"] == pytest.approx(most, rel=0.1)
    last = memory.budget(most // 2, device="cpu", placements=("keep", "disk"))
    for _ in range(3):
        training.step(last)
    assert re.search(r"go to the disk at [\d.]+ GB/s, back at \d", str(last.report()))


RESIDENT = """
import cugrad as torch
from cugrad import memory
from cugrad.memory.budgeting.planning import search
from contextlib import nullcontext

def resident():
    with open("/proc/self/status") as lines:  # ru_maxrss would count the parent's, too
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

x = torch.ones(1 << 19, requires_grad=True)
def step(saving):
    with saving:
        h = x
        for _ in range(40):
            h = (h * 0.5).sin()
        h.sum().backward()
    x.grad = None
search.WORK //= 10  # a plan that is good enough
for _ in range(3):
    step(memory.budget("30MB", device="cpu", placements=("keep", "recompute")))
print(resident())
step(nullcontext())
print(resident())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells it")
def test_the_process_is_smaller() -> None:
    """By its resident set, over three steps that would keep 80 MB; a plain one behind them does."""
    run = subprocess.run(
        [sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True,
        env={**os.environ, "CUGRAD_DEVICE": "cpu"}, cwd=ROOT,
    )  # fmt: skip
    budget, plain = map(int, run.stdout.split())
    assert budget < plain - 20e6


def test_a_step_that_differs_is_measured_anew() -> None:
    x = torch.rand(64, 32, device="simulated", requires_grad=True)

    def step(rows: int, ops: int) -> tuple[memory.budget, Any]:
        x.grad = None
        with memory.budget("1GB", device="simulated") as plan:
            h = x[:rows] * 1
            for _ in range(ops):
                h = h.sin().exp().tanh()
            h.sum().backward()
        assert x.grad is not None
        return plan, x.grad.cpu().numpy()

    first, wanted = step(64, 3)
    assert first.last is not None and not first.last.tried
    again, found = step(64, 3)
    assert again.last is first.last and found.tobytes() == wanted.tobytes()
    smaller, _ = step(32, 3)  # measured: its first value has another size
    assert smaller.last is not first.last
    longer, _ = step(64, 5)  # it began as the first, and went on otherwise
    assert longer.last is None
    longer, _ = step(64, 5)  # so now it is measured
    assert longer.last is not None and longer.last is not first.last
    for _ in range(2):
        back, found = step(64, 3)
    assert back.last is not None and back.last.sizes == first.last.sizes
    assert found.tobytes() == wanted.tobytes()


def test_a_step_may_begin_like_one_that_is_settled() -> None:
    """And go on like another, whose plan is not."""
    x, w = [torch.rand(64, 64, device="simulated") for _ in range(2)]
    w.requires_grad_()

    def step(layers: int) -> Any:
        with memory.budget("777MiB", device="simulated") as plan:
            h = x
            for _ in range(layers):
                h = (h @ w).tanh()
            h.sum().backward()
        return plan

    step(3)
    plans = [step(2) for _ in range(8)]
    assert plans[-1].last.settled
    assert step(3).last.steps == 1


def test_several_steps_in_one_context() -> None:
    _, wanted = trained("simulated", nullcontext, 3)
    torch.manual_seed(0)
    training = Training("simulated")
    with memory.budget("1GB", device="simulated") as plan:
        for _ in range(3):
            training.step(nullcontext())
    assert plan.last is not None and len(plan.last.tried) >= 1
    for w, b in zip(training.weights, wanted, strict=True):
        assert w.detach().cpu().numpy().tobytes() == b.tobytes()


def test_an_error_in_a_step_teaches_nothing() -> None:
    x = torch.rand(64, 64, device="simulated", requires_grad=True)
    for fails in (True, False, True, False):
        x.grad = None
        try:
            with memory.budget("1GB", device="simulated") as plan:
                y = (x * x).exp().sum()
                if fails:
                    raise KeyError("mine")
                y.backward()
        except KeyError:
            assert fails
        assert (plan.last is None) == fails
    np.testing.assert_allclose(
        grad_of(x), (2 * x * (x * x).exp()).detach().cpu().numpy(), rtol=1e-5
    )


@pytest.mark.filterwarnings("ignore:budget")
def test_what_an_error_leaves_in_memory_ends_no_training() -> None:
    """One step that begins with too much in use warns; those after it fit again."""
    plain, _ = trained("simulated", nullcontext, 2)
    limit = int(0.7 * plain.peak)
    trained("simulated", lambda: memory.budget(limit, device="simulated"), 6)
    left = torch.zeros(limit // 8, device="simulated")  # half of it
    with pytest.warns(UserWarning, match="over its limit of .* were in use as it began"):
        trained("simulated", lambda: memory.budget(limit, device="simulated"), 1)
    del left
    found, _ = trained("simulated", lambda: memory.budget(limit, device="simulated"), 5)
    assert found.peak <= limit


def test_what_waits_for_the_collector_is_collected_in_time() -> None:
    plain, _ = trained("simulated", nullcontext, 2)
    limit, backend = int(0.8 * plain.peak), backends.get("simulated")
    training, started = Training("simulated"), gc.isenabled()
    gc.disable()
    try:
        for _ in range(12):
            training.step(memory.budget(limit, device="simulated"))
            assert training.peak <= limit
            cycle: list[Any] = [torch.zeros(limit // 80, device="simulated")]
            cycle.append(cycle)
            del cycle
        assert backend.memory_allocated() < limit
    finally:
        if started:
            gc.enable()


def test_what_the_measured_step_shows_to_fit_is_followed() -> None:
    """Of gradients of gradients forecasts suppose that what is back stays for the second pass."""
    net = torch.nn.Sequential(
        *[m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    ).to("simulated")
    backend, data = backends.get("simulated"), torch.rand(256, 64, device="simulated")

    def step(saving: Any) -> int:
        backend.reset_peak_memory_stats()
        with saving:
            net.zero_grad()
            x = data.clone().requires_grad_()
            (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            g.square().sum().backward()
            del g
        return backend.max_memory_allocated()

    plain = [step(nullcontext()) for _ in range(2)][1]
    least = step(memory.budget(2 * plain, device="simulated"))
    assert least < 0.97 * plain
    limit = (least + plain) // 2
    for _ in range(6):
        assert step(memory.budget(limit, device="simulated")) <= limit


def test_what_is_too_small_says_what_is_needed() -> None:
    with pytest.raises(memory.BudgetError, match=r"needs at least .* At its peak, in \w+"):
        trained("simulated", lambda: memory.budget("300KB", device="simulated"), 2)


@pytest.mark.filterwarnings("ignore:budget")
def test_an_optimizers_memory_counts_when_it_comes() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)]).to("simulated")
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.rand(512, 128, device="simulated")
    backend = backends.get("simulated")

    def step(saving: Any) -> int:
        backend.reset_peak_memory_stats()
        with saving:
            optimizer.zero_grad()
            h = x
            for layer in net:
                h = torch.tanh(layer(h))
            loss = h.sum()
            del h
            loss.backward()
        peak = backend.max_memory_allocated()
        optimizer.step()
        return peak

    step(nullcontext())
    limit = int(0.85 * step(nullcontext()))
    optimizer.state.clear()
    peaks = [step(memory.budget(limit, device="simulated")) for _ in range(9)]
    assert peaks[-1] <= limit


@pytest.mark.filterwarnings("ignore:budget")
def test_micro_batches_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are there from the second one on: two amounts, each with a plan that is kept."""
    plans: list[Plan] = []
    make_plan = planning.plan

    def counted(*args: Any, **kwargs: Any) -> Plan:
        plans.append(make_plan(*args, **kwargs))
        return plans[-1]

    monkeypatch.setattr(planning, "plan", counted)
    net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(6)]).to("simulated")
    x = torch.rand(256, 128, device="simulated")
    for step in range(14):
        if step == 10:
            settled = len(plans)
        net.zero_grad()
        for _ in range(3):
            with memory.budget("2MB", device="simulated") as plan:
                h = x
                for layer in net:
                    h = torch.tanh(layer(h))
                h.sum().backward()
                del h
    assert plan.last is not None and len(plan.last.courses) == 2
    assert len(plans) == settled
    backend = backends.get("simulated")
    report = plan.report()
    assert report["memory"][0] >= backend.memory_allocated()  # what is there already counts
    assert report["predicted_peak"] == pytest.approx(report["peak"], rel=0.1)


def test_another_simulated_device_has_its_own_rates() -> None:
    def rate(limit: str) -> float:
        plan = memory.budget(limit, device="simulated")
        trained("simulated", lambda: plan, 1)
        budgeting._learned.clear()
        found: float = plan.report()["out_rate"]
        return found

    small, large = rate("10MB"), rate("10GB")
    assert small < large  # a small limit leaves room for small copies only
    with simulated.configured("H200", to_host=1e9):
        assert rate("10GB") < 1.1e9
    assert rate("10GB") == pytest.approx(large)


def test_fewer_bits_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "plan", by_chance("bits", (COMPRESS,)))
    _, found = trained(
        "simulated", lambda: memory.budget("1GB", device="simulated", lossless=False), 2
    )
    _, lossless = trained("simulated", nullcontext, 2)
    for a, b in zip(found, lossless, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)
    assert any(a.tobytes() != b.tobytes() for a, b in zip(found, lossless, strict=True))


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_the_disk_gives_back_what_it_got(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wanted = trained(device, nullcontext, 3)
    monkeypatch.setattr(planning, "plan", by_chance("disk", (DISK, KEEP)))
    _, found = trained(device, lambda: memory.budget("1GB", device=device, host_limit="1GB"), 3)
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [(5, 5), ("12GiB", 12 << 30), ("1.5 MB", 1_500_000), (" 500kib ", 512_000), ("7", 7)],
)
def test_sizes(limit: Any, wanted: int) -> None:
    assert bytes_of(limit, "budget: limit") == wanted


@pytest.mark.parametrize("limit", ["", "12 parsecs", 0, -1, "-3GB", True, None, "GiB"])
def test_what_is_no_size(limit: Any) -> None:
    with pytest.raises(ValueError, match="budget: limit: got .* want bytes"):
        memory.budget(limit)


def test_sizes_for_people() -> None:
    assert [size(n) for n in (12, 2048, 3 << 20, 5 << 30)] == ["12 B", "2 KiB", "3 MiB", "5 GiB"]


def test_wrong_arguments() -> None:
    for places in ("keep", ("offload",), ("keep", "away")):
        with pytest.raises(ValueError, match="budget: placements: got .* want several of keep,"):
            memory.budget(100, placements=places)  # type: ignore[arg-type]
    for places in (None, 5):
        with pytest.raises(ValueError, match="budget: placements: got "):
            memory.budget(100, placements=places)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'compress' is not lossless; it needs lossless=False"):
        memory.budget(100, placements=("keep", "compress"))
    with pytest.raises(TypeError, match="budget: lossless: got 'no', want True or False"):
        memory.budget(100, lossless="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="budget: host_limit: got -4, want bytes"):
        memory.budget(100, host_limit=-4)
    assert memory.budget(100, host_limit="4GB").host_limit == 4 * 10**9
    with pytest.raises(RuntimeError, match="no forward and backward ran within it"):
        memory.budget(100).report()


def test_another_thread_is_told() -> None:
    errors: list[Exception] = []

    def enter() -> None:
        try:
            with plan:
                pass
        except RuntimeError as error:
            errors.append(error)

    with memory.budget("1GB") as plan:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert "make one for each thread" in str(errors[0])


@contextmanager
def both(outer: Any, inner: Any) -> Iterator[None]:
    with outer, inner:
        yield


@pytest.mark.filterwarnings("ignore:budget")
def test_all_say_the_same_of_a_peak() -> None:
    """A timeline around each step, the report after it, and what the device counted."""
    plain, _ = trained("simulated", nullcontext, 2)
    for limit in (2 * plain.peak, int(0.6 * plain.peak)):
        training, plan = Training("simulated"), memory.budget(limit, device="simulated")
        for _ in range(5):
            around = torch.profiler.MemoryTimeline("simulated")
            training.step(both(around, plan))
            assert plan.report()["peak"] == around.peak == training.peak
            assert f"peak                 {size(training.peak)} in " in repr(plan.report())


def test_ops_in_other_threads_are_refused() -> None:
    net = torch.nn.DataParallel(
        torch.nn.Linear(8, 8).to("simulated"), device_ids=["simulated", "simulated"]
    )
    x = torch.rand(4, 8, device="simulated")
    with memory.budget("1GB", device="simulated") as plan:
        with pytest.raises(RuntimeError, match="run in another thread, as those of a DataParallel"):
            net(x)
        assert repr(plan) == "<budget of 953.7 MiB on 'simulated': no step yet>"
    one = torch.nn.DataParallel(net.module, device_ids=["simulated"])
    for _ in range(2):
        with memory.budget("1GB", device="simulated") as plan:
            one(x).sum().backward()
    assert plan.report()["steps_followed"] == 1 and "1 plan, the last step took" in repr(plan)


def test_the_peak_that_a_user_reads_is_his() -> None:
    """Since he has reset it; a budget looks at each step, and at each op of the first."""
    backend = backends.get("simulated")
    for _ in range(3):
        trained("simulated", lambda: memory.budget("3MB", device="simulated"), 1)
        before = backend.memory_allocated()
        backend.reset_peak_memory_stats()
        x = torch.rand(256, 256, device="simulated", requires_grad=True)
        with memory.budget("3MB", device="simulated"):
            (x * x).exp().sum().backward()
        peak = backend.max_memory_allocated()
        assert peak >= before + 2 * x.nbytes
        torch.zeros(1 << 20, device="simulated")
        assert backend.max_memory_allocated() > peak
        with memory.budget("3MB", device="simulated"):
            (x * x).exp().sum().backward()
        assert backend.max_memory_allocated() > peak


def test_budgets_do_not_nest() -> None:
    with memory.budget("1GB") as plan:
        for inner in (plan, memory.budget("500MB")):
            with pytest.raises(RuntimeError, match="is entered within one of 953.7 MiB"), inner:
                pass
    with plan:
        pass


def test_a_budget_around_forward_alone_is_told_where_backward_is() -> None:
    x = torch.rand(64, 64, device="simulated", requires_grad=True)
    plan = memory.budget("1GB", device="simulated")
    with plan:
        y = (x * x).exp().sum()
    with pytest.warns(UserWarning, match="backward runs after the budget has ended") as told:
        y.backward()
    assert told[0].filename == __file__
    with plan:  # an evaluation is none of that
        (x * x).exp().sum()
    with plan:
        (x * x).exp().sum().backward()


@pytest.mark.parametrize("rows", [16, 4])
def test_an_evaluation_between_steps_costs_no_plan(rows: int) -> None:
    """Also one whose inputs are made outside of `no_grad`: the next step follows what it did."""
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).to("simulated")
    told = []
    with memory.budget("1MiB", device="simulated") as plan:
        for _ in range(4):
            net(torch.ones(16, 64).to("simulated")).square().mean().backward()
            for _ in range(2):
                x = torch.ones(rows, 64).to("simulated")
                with torch.no_grad():
                    assert net(x).square().mean() >= 0
            told.append(plan.report()["steps_followed"])
    assert told == [0, 1, 2, 3]


def test_a_disk_is_for_who_names_it_or_has_little_host_memory() -> None:
    def budget(**arguments: Any) -> frozenset[str]:
        return memory.budget("1GB", **arguments).placements

    assert DISK not in budget(device="simulated") and OFFLOAD in budget(device="simulated")
    assert DISK in budget(device="simulated", host_limit="1GB")
    assert DISK in budget(device="simulated", placements=("keep", "disk"))
    assert DISK in budget(device="cpu")


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_budget_for_another_device_is_told(device: str) -> None:
    other = "cpu" if device == "simulated" else "simulated"
    x = torch.rand(64, 64, device=other, requires_grad=True)
    wanted = "budget: the limit is for the memory of '.*', and .* is on '.*'; say device="
    with pytest.warns(UserWarning, match=wanted), memory.budget("1GB", device=device) as plan:
        (x * x).exp().sum().backward()
    assert set(plan.report()["placements"]) <= {KEEP}


def test_what_is_on_another_device_takes_no_room() -> None:
    x = torch.rand(512, 512, requires_grad=True)
    for _ in range(3):
        x.grad = None
        with memory.budget("1GB", device="simulated") as plan:
            ((x * x).exp().to("simulated") * 2).sin().sum().backward()
    assert plan.report()["peak_without"] < 5 * x.nbytes
    np.testing.assert_allclose(
        grad_of(x), (4 * x * (x * x).exp() * (2 * (x * x).exp()).cos()).detach().numpy(), rtol=1e-3
    )


def test_what_does_not_fit_can_be_looked_at() -> None:
    plan = memory.budget("300KB", device="simulated")
    with pytest.raises(memory.BudgetError, match="needs at least .* Raise the limit, or make"):
        trained("simulated", lambda: plan, 1)
    report = plan.report()
    assert report["peak"] == report["needs"] > 300_000 == report["limit"]


def test_a_report_of_a_roomy_limit_says_nothing_of_the_least() -> None:
    plan = memory.budget("12GB", device="simulated")
    trained("simulated", lambda: plan, 1)
    lines = str(plan.report()).splitlines()
    assert lines[0].split() == ["limit", "11.18", "GiB"]
    assert "MiB" in lines[1] and lines[3].startswith("held by              At its peak, in ")


def test_what_was_not_forecast_leaves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that forecasts nothing keeps everything, again and again: the limit holds."""
    plain, wanted = trained("simulated", nullcontext, 2)
    limit = plain.peak // 2
    monkeypatch.setattr(planning, "plan", by_chance("keep", (KEEP,)))
    for steps in (1, 2):
        held, found = trained("simulated", lambda: memory.budget(limit, device="simulated"), steps)
        assert held.peak <= limit
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_step_over_its_limit_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where nothing may leave."""
    plain, _ = trained("simulated", nullcontext, 2)
    monkeypatch.setattr(planning, "plan", by_chance("keep", (KEEP,)))
    stays = {"device": "simulated", "placements": (KEEP, RECOMPUTE)}
    with pytest.warns(UserWarning, match="over its limit"), pytest.raises(memory.BudgetError):
        trained("simulated", lambda: memory.budget(plain.peak // 2, **stays), 9)


@pytest.mark.filterwarnings("ignore:budget")
def test_a_step_with_ops_in_place_is_followed() -> None:
    w = torch.rand(64, 64, device="simulated", requires_grad=True)
    x = torch.rand(256, 64, device="simulated")
    known, found = [], []
    for _ in range(5):
        w.grad = None
        with memory.budget("900KB", device="simulated") as plan:
            h = x
            for _ in range(8):
                h = (h @ w).mul_(0.1).add_(0.2).sigmoid_() + h
            h.sum().backward()
        known.append(plan.last)
        found.append(grad_of(w).tobytes())
    assert known[0] is not None and all(k is known[0] for k in known) and known[0].tried
    assert len(set(found)) == 1


def test_a_peak_on_the_cpu_is_the_last_that_was_counted() -> None:
    """Once a plan is settled steps are not counted: they take what the tried one took."""
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64), torch.nn.Tanh()] * 4)
    x, peaks = torch.ones(1024, 64), []
    for _ in range(8):
        with memory.budget("4MB", device="cpu") as plan:
            net.zero_grad()
            net(x).square().mean().backward()
        peaks.append(plan.report()["peak"])
    with torch.profiler.MemoryTimeline("cpu") as around:
        net.zero_grad()
        net(x).square().mean().backward()
    assert peaks[-1] == peaks[-2] > around.peak / 2


@pytest.mark.parametrize("limit", ["11.5MiB", "14MiB"])
def test_states_made_within_the_first_step_count_once(limit: str) -> None:
    """Adam makes them behind the last node; the next step begins with them."""
    blocks = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh()) for _ in range(8)]
    net = torch.nn.Sequential(*blocks).to("simulated")
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(512, 256, device="simulated")
    for _ in range(4):
        with memory.budget(limit, device="simulated", placements=["keep", "recompute"]) as plan:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    report = plan.report()
    assert report["peak"] <= bytes_of(limit, "limit")
    assert report["predicted_peak"] == pytest.approx(report["peak"], rel=0.01)
