"""Budgets with a model, in loops of several passes, in those that fail, and of more optimizers."""

from __future__ import annotations

import gc
import re
import warnings
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.memory.budgeting.model_states import chooser
from cugrad.memory.budgeting.planning import search
from tests.memory.states.training import clip_one_by_one, deep

DEVICE: Any = backends.get("simulated")


pytestmark = pytest.mark.usefixtures("nothing_stays_placed", "quick_plans")


@pytest.mark.parametrize("share", [0.35, 0.5])
def test_gradients_that_are_added_to_are_there_from_the_second_pass_on(share: float) -> None:
    """They count from its beginning, and a plan for that is the first pass's, too."""

    def run(limit: int | None) -> tuple[list[float], int, Any]:
        cugrad.manual_seed(0)
        net = deep(128, 8).to("simulated")
        optimizer, losses = cugrad.optim.Adam(net.parameters()), []
        x = cugrad.rand(64, 128, device="simulated")
        gc.collect()
        DEVICE.synchronize()
        DEVICE.reset_peak_memory_stats()
        budget: Any = cugrad.enable_grad()
        if limit is not None:
            budget = memory.budget(limit, model=net, optimizer=optimizer)
        with budget as plan:
            for _ in range(5):
                optimizer.zero_grad()
                for _ in range(2):
                    loss = net(x).square().mean()
                    loss.backward()
                optimizer.step()
                losses.append(loss.item())
            peak = DEVICE.max_memory_allocated()
        return losses, peak, plan

    gc.collect()
    base = DEVICE.memory_allocated()
    losses, peak, _ = run(None)
    limit = base + int(share * (peak - base))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(limit)
    plan = result[2].last
    assert result[0] == losses and result[1] <= limit
    assert plan.steps >= 6 and len(plan.courses) == 1  # of 10 passes
    assert plan.settled or plan.plan.keeps_all


def test_a_report_is_there_behind_a_step_that_has_failed() -> None:
    cugrad.manual_seed(0)
    net = deep(128, 4).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(16, 128, device="simulated")
    with memory.budget("1MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        for k in range(4):
            optimizer.zero_grad()
            if k == 2:
                net(x)  # and then something fails
            net(x).square().mean().backward()
            optimizer.step()
            assert plan.report()["states"]["places"]["states"] != "device"


def test_passes_whose_gradients_are_given_up_are_no_part_of_a_step() -> None:
    """As where a batch fails behind the first one of an accumulation."""
    cugrad.manual_seed(0)
    net = deep(128, 4).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(16, 128, device="simulated")
    with memory.budget("1MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        states: Any = plan._states
        for gives_up in (False, True, False, True):
            for _ in range(2):
                net(x).square().mean().backward()
                optimizer.zero_grad(set_to_none=gives_up) if gives_up else None
            assert states.passes == 1 - gives_up  # the last one ends with the step
            optimizer.step()
            optimizer.zero_grad()


def test_what_a_step_computes_in_has_room() -> None:
    """It is measured, with a small parameter of each kind."""
    cugrad.manual_seed(0)
    for kind, settings in ("Adadelta", {"weight_decay": 0.1}), ("Adafactor", {}):
        net = cugrad.nn.Linear(256, 256, bias=False).to("simulated")
        optimizer = getattr(cugrad.optim, kind)(net.parameters(), **settings)
        plan = memory.budget("8MiB", model=net, optimizer=optimizer)
        plan._states.inventory.count()
        (part,) = plan._states.inventory.layout.parts
        net.weight.grad = cugrad.ones(256, 256, device="simulated")
        optimizer.step()
        gc.collect()
        before = DEVICE.memory_allocated()
        DEVICE.reset_peak_memory_stats()
        optimizer.step()
        taken = DEVICE.max_memory_allocated() - before
        assert taken <= part.work < 1.5 * taken + 4096


def test_of_a_large_step_places_are_chosen_by_rough_plans(monkeypatch: Any) -> None:
    """They take fewer forecasts, and the limit is kept."""
    looks = {True: 0, False: 0}
    look, planned = search.Search.look, chooser.Chooser._planned
    large = False

    def counted(self: Any, placements: Any) -> Any:
        looks[large] += inside[0]
        return look(self, placements)

    def noted(self: Any, *args: Any) -> Any:
        inside[0] = True
        try:
            return planned(self, *args)
        finally:
            inside[0] = False

    inside = [False]
    monkeypatch.setattr(search.Search, "look", counted)
    monkeypatch.setattr(chooser.Chooser, "_planned", noted)
    for large in (False, True):
        monkeypatch.setattr(chooser, "LARGE", 4 if large else 1000)
        cugrad.manual_seed(0)
        net = deep(96, 5).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        x = cugrad.rand(512, 96, device="simulated")
        gc.collect()
        limit = DEVICE.memory_allocated() + (1 << 20)
        with memory.budget(limit, model=net, optimizer=optimizer, bring_back=True) as plan:
            for _ in range(3):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            assert plan.report()["steps_followed"] == 2 and plan.last.peak <= limit
    assert 0 < looks[True] < looks[False] / 4


def test_weights_that_no_one_trains_are_no_saved_values() -> None:
    """Wherever they lie as an op ends: they come and leave, and no op has made them."""
    cugrad.manual_seed(0)
    layers = []
    for _ in range(4):
        layers += [cugrad.nn.Linear(128, 128).requires_grad_(False), cugrad.nn.Linear(128, 4)]
        layers += [cugrad.nn.Linear(4, 128)]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    optimizer = cugrad.optim.Adam([p for p in net.parameters() if p.requires_grad])
    x = cugrad.rand(4, 128, device="simulated")
    gc.collect()
    DEVICE.synchronize()
    limit = DEVICE.memory_allocated() - sum([p.nbytes for p in net.parameters()]) + (144 << 10)
    with memory.budget(limit, model=net, optimizer=optimizer, bring_back=True) as plan:
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            assert plan.last.peak <= limit
        assert max([value.nbytes for value in plan.last.step.values]) < 128 * 128 * 4


class Recurrent(cugrad.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = cugrad.nn.LSTM(128, 128, num_layers=2)

    def forward(self, x: Any) -> Any:
        return self.cells(x.reshape(2, -1, 128))[0]


def test_weights_that_come_within_an_op_count_once() -> None:
    """An op may take many, of which none was there before: what it takes beside them is little."""
    cugrad.manual_seed(0)
    net = Recurrent().to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(4, 128, device="simulated")
    layer = 2 * 4 * 128 * 128 * 4  # bytes
    with memory.budget("4MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        seen = plan._states._seen
        names = [event.name for event in seen.step.events]
        nodes = [k for k, name in enumerate(names) if name.startswith("RecurrentLayerB")]
        assert len(nodes) == 2 and min([seen.placed[k, 0] for k in nodes]) >= layer


def test_what_came_ahead_leaves_where_room_is_needed() -> None:
    cugrad.manual_seed(0)
    net = deep(128, 8).to("simulated")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
    x = cugrad.rand(16, 128, device="simulated")
    gc.collect()
    DEVICE.synchronize()
    limit = DEVICE.memory_allocated() + (64 << 10)
    with memory.budget(limit, model=net, optimizer=optimizer, bring_back=True) as plan:
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        weights = plan._states.context._windows["weights"]
        used, ahead = DEVICE.memory_allocated(), weights.swept()
        assert weights.limit is not None and ahead >= 128 << 10
        plan._limiter.make_room(limit - used + (64 << 10))
        assert DEVICE.memory_allocated() <= used - (64 << 10)
        assert weights.swept() <= ahead - (64 << 10)


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize(("kind", "limit"), [("SGD", 22), ("ASGD", 85)])
def test_what_stays_between_steps_has_room(kind: str, limit: int, clips: bool) -> None:
    """Numbers that an optimizer has on the device, norms of gradients that leave, what came last
    and gradients that are set to zero, of which the first step shows nothing.
    """

    def run(limit: int | None, zeros: bool) -> list[float]:
        cugrad.manual_seed(0)
        net = deep(32, 5).to("simulated")
        optimizer, losses = getattr(cugrad.optim, kind)(net.parameters(), lr=0.01), []
        x = cugrad.rand(8, 32, device="simulated")
        gc.collect()
        DEVICE.synchronize()
        most = DEVICE.memory_allocated() - sum([p.nbytes for p in net.parameters()])
        budget: Any = cugrad.enable_grad()
        if limit is not None:
            most += limit
            budget = memory.budget(most, model=net, optimizer=optimizer, bring_back=True)
        with budget as plan:
            for step in range(3):
                DEVICE.reset_peak_memory_stats()
                optimizer.zero_grad(set_to_none=not zeros)
                loss = net(x).square().mean()
                loss.backward()
                if clips:
                    clip_one_by_one(net.parameters(), 0.1)
                optimizer.step()
                losses.append(loss.item())
                assert limit is None or not step or DEVICE.max_memory_allocated() <= most
            assert limit is None or plan._states._seen.zeroed == zeros
        return losses

    zeros = clips != (kind == "SGD")  # any two of the three meet
    assert run((limit + 8 * zeros) << 10, zeros) == run(None, zeros)


@pytest.mark.parametrize("network", ["deep", "recurrent"])
def test_the_least_that_an_error_names_is_enough(network: str) -> None:
    """With accumulation, whose second pass needs more, in the second try at the latest."""

    def run(limit: int | None) -> int:
        cugrad.manual_seed(0)
        net = (deep(128, 4) if network == "deep" else Recurrent()).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        x = cugrad.rand(512, 128, device="simulated")
        gc.collect()
        DEVICE.synchronize()
        DEVICE.reset_peak_memory_stats()
        budget: Any = cugrad.enable_grad()
        if limit is not None:
            budget = memory.budget(limit, model=net, optimizer=optimizer, bring_back=True)
        with budget:
            for _ in range(4):
                optimizer.zero_grad()
                for _ in range(2):
                    net(x).square().mean().backward()
                optimizer.step()
            return int(DEVICE.max_memory_allocated())

    limit = run(None) // 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            try:
                assert run(limit) <= limit
                return
            except memory.BudgetError as error:
                text = re.search(r"(?:at least|least took|few:) ([\d.]+) ([KM])iB", str(error))
                assert text is not None
                limit = int(float(text[1]) * 1024 ** " KM".index(text[2]) * 1.001)
    assert run(limit) <= limit


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_a_choice_foresees_what_its_steps_take(share: float) -> None:
    """With what an optimizer keeps of small parameters, too, which the first step makes."""

    def run(limit: int | None) -> tuple[int, Any]:
        cugrad.manual_seed(0)
        net = deep(64, 6).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters(), amsgrad=True)
        x = cugrad.rand(64, 64, device="simulated")
        gc.collect()
        DEVICE.synchronize()
        DEVICE.reset_peak_memory_stats()
        budget: Any = cugrad.enable_grad()
        if limit is not None:
            budget = memory.budget(limit, model=net, optimizer=optimizer, bring_back=True)
        with budget as plan:
            for step in range(4):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
                if limit is not None and step:
                    assert plan.last.peak <= min(plan._states.chosen.peak + 512, limit)
                    assert (
                        plan.last.now.plan.forecast.peak <= plan._states.chosen.peak + limit // 100
                    )
            return int(DEVICE.max_memory_allocated()), plan

    gc.collect()
    base = DEVICE.memory_allocated()
    peak, _ = run(None)
    run(base + int(share * (peak - base)))


def test_a_step_that_is_measured_holds_no_gradients() -> None:
    """Those that leave have left when the next node needs the room."""
    cugrad.manual_seed(0)
    net = deep(128, 4).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(16, 128, device="simulated")
    with memory.budget("4MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        seen = plan._states._seen
        names = [event.name for event in seen.step.events]
        nodes = [k for k, name in enumerate(names) if name == "TanhBackward0"]
        assert len(nodes) == 4 and not any(seen.placed[nodes, 1])


def test_a_weight_that_comes_in_an_event_is_none_of_its_own_memory() -> None:
    """Also where nothing else is taken then, as where a gradient is added to it: else places with
    room for it seemed to need it twice.
    """
    cugrad.manual_seed(0)
    net = deep(64, 4).to("simulated")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
    x = cugrad.rand(8, 64, device="simulated")
    with memory.budget("1MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        net(x).square().mean().backward()
        optimizer.step()
        seen = plan._states._seen
    events = [k for k, e in enumerate(seen.step.events) if e.name.endswith("AccumulateGrad")]
    weights = sorted([-(-p.nbytes // 512) * 512 for p in net.parameters()])
    assert sorted(seen.placed[events, 0]) == weights
    assert not any(seen.step.events[k].own for k in events)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor"])
@pytest.mark.parametrize("is_set_to_none", [True, False])
def test_what_is_enough_is_named_once_whatever_becomes_of_gradients(
    name: str, is_set_to_none: bool
) -> None:
    """A loop that sets them to zero says so before its first pass: that they stay, and are added
    to, is no news behind it.
    """
    limit, ended = 1, list[str]()
    for _ in range(4):  # on entering, in the first op, and behind the first pass
        cugrad.manual_seed(0)
        net = deep(64, 3).to("simulated")
        optimizer = getattr(cugrad.optim, name)(net.parameters(), lr=0.01)
        x = cugrad.rand(8, 64, device="simulated")
        gc.collect()
        try:
            with memory.budget(limit, model=net, optimizer=optimizer) as plan:
                for _ in range(4):
                    optimizer.zero_grad(set_to_none=is_set_to_none)
                    net(x).square().mean().backward()
                    optimizer.step()
            ended.append("all")
            break
        except memory.BudgetError as error:
            least = re.search(r"(?:needs at least|few:) ([\d.]+) KiB", str(error))
            assert least is not None
            limit = int(float(least[1]) * 1024)
            error.__traceback__ = None
    assert ended == ["all"] and plan.peak() <= limit
