"""A budget that is given a model places its weights, gradients and states, too."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.budgeting.model_states import choosing
from tests.memory.states.training import arrays_of, clip_one_by_one, deep, same

DEVICE: Any = backends.get("simulated")


pytestmark = pytest.mark.usefixtures("nothing_stays_placed", "quick_plans")


class Recurrent(cugrad.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = cugrad.nn.LSTM(128, 128, num_layers=2)

    def forward(self, x: Any) -> Any:
        return self.cells(x.reshape(4, -1, 128))[0]


NETWORKS = {
    "linear": lambda: deep(192, 6), "recurrent": Recurrent, "small layers": lambda: deep(48, 8),
    "long": lambda: deep(192, 10),
}  # fmt: skip


def trained(
    network: str,
    rows: int,
    steps: int,
    enter: Any,
    capacity: float | None = None,
    clips: bool = True,
) -> tuple[list[float], Any, int, Any]:
    """Losses, weights, the peak of the device, and what `enter` has made. The device has no more
    than `capacity` bytes meanwhile.
    """
    cugrad.manual_seed(0)
    net = NETWORKS[network]().to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters(), lr=0.01)
    width = next(iter(net.parameters())).shape[-1]
    x = cugrad.rand(rows, width, device="simulated")
    gc.collect()
    DEVICE.synchronize()
    DEVICE.empty_cache()
    allowed = {} if capacity is None else {"capacity": capacity}
    with simulated.configured(**allowed), enter(net, optimizer) as context:
        gc.collect()
        DEVICE.reset_peak_memory_stats()
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            if clips:
                clip_one_by_one(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        peak = DEVICE.max_memory_allocated()
    del loss
    with memory.offload_states(net, optimizer):
        pass  # all is back
    return losses, arrays_of(list(net.parameters())), peak, context


@functools.cache
def plainly(network: str, steps: int, clips: bool = True) -> tuple[list[float], Any, int]:
    """Losses, weights, and what the device has at most beside what is there before."""
    gc.collect()
    base = DEVICE.memory_allocated()
    losses, weights, peak, _ = trained(
        network, 16, steps, lambda *args: contextlib.nullcontext(), clips=clips
    )
    return losses, weights, peak - base


def in_use() -> int:
    """Bytes of the device that are not garbage."""
    gc.collect()
    return int(DEVICE.memory_allocated())


@pytest.mark.parametrize("network", ["linear", "recurrent", "small layers"])
def test_half_of_the_memory_gives_the_same(network: str) -> None:
    """And the device has no more: what does not fit is an error there."""
    losses, weights, taken = plainly(network, 3)
    limit = in_use() + taken // 2

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer)

    with simulated.configured(host=1e9):
        result = trained(network, 16, 3, within, 1.05 * limit)
    assert result[0] == losses and same(result[1], weights)
    assert result[2] <= limit
    states = result[3].report()["states"]
    assert states["places"]["states"] == "stream" and len(states["candidates"]) >= 1
    assert "training state" in str(result[3].report())


@pytest.mark.parametrize(
    ("host", "link", "step"),
    [(1e9, 50e9, "behind backward"), (1e13, 1e9, "behind backward"),
     (1e13, 1e9, "during backward"), (1e9, 1e13, "during backward")],
)  # fmt: skip
def test_the_fastest_of_host_and_device_steps(host: float, link: float, step: str) -> None:
    """Whichever it is, and whenever: the arithmetic is the same here, and the limit kept."""
    losses, weights, taken = plainly("linear", 3, clips=False)
    limit = in_use() + 2 * taken // 3

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer, step=step)

    rates = {"host": host, "to_host": link, "to_device": link, "policy": "timed"}
    with simulated.configured(**rates):
        result = trained("linear", 16, 3, within, 1.05 * limit, clips=False)
    assert result[0] == losses and same(result[1], weights)
    assert result[2] <= limit
    report = result[3].report()
    states = report["states"]
    assert (states["places"]["states"] == "host") == (host > link)
    assert f"the step        {states['step']}, on the {'host' if host > link else 'dev'}" in str(
        report
    )
    assert any("during" in name for name, *_ in states["candidates"]) == (step == "during backward")
    assert states["step"] in ("behind backward", step)


def test_the_next_budget_begins_where_this_one_is() -> None:
    """It need not measure the same loop again."""
    cugrad.manual_seed(0)
    net = deep(192, 8).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(16, 192, device="simulated")
    seen: list[Any] = []
    for steps in (5, 2, 2):
        with memory.budget("4MiB", model=net, optimizer=optimizer) as plan:
            began = plan._states.chosen
            for _ in range(steps):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            report = plan.report()
            seen.append((began, plan._states.chosen, report["steps_followed"], report["peak"]))
    assert seen[0][0] != seen[0][1]  # the first one's first step has taught it
    assert seen[1][0] is seen[1][1] is seen[2][0] is seen[0][1]
    assert [each[2] for each in seen] == [4, 6, 8]  # followed a plan, but for the first
    assert max(each[3] for each in seen) <= 4 << 20
    with memory.budget("4MiB", model=net, optimizer=optimizer, host_limit="1GiB") as plan:
        assert plan._states.chosen is not seen[0][1] and not plan._states.tried
    with memory.offload_states(net, optimizer):
        pass


def test_what_fits_stays() -> None:
    losses, weights, taken = plainly("linear", 3)
    limit = 2 * (in_use() + taken)

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer)

    result = trained("linear", 16, 3, within)
    assert result[0] == losses and same(result[1], weights)
    assert set(result[3].report()["states"]["places"].values()) == {"device"}


def test_too_little_is_said_before_anything_is_computed() -> None:
    net = deep(256, 2).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    with pytest.raises(memory.BudgetError, match="are too few: .* the largest parameter with its"):
        memory.budget("512KiB", model=net, optimizer=optimizer).__enter__()
    with pytest.raises(memory.BudgetError, match="the host needs at least 1.75 MiB .* disk=True"):
        memory.budget("1536KiB", model=net, optimizer=optimizer, host_limit="512KiB").__enter__()
    with pytest.raises(ValueError, match="want the model as well"):
        memory.budget("8MiB", optimizer=optimizer)
    with pytest.raises(ValueError, match="got a model and no optimizer"):
        memory.budget("8MiB", model=net)
    with pytest.raises(TypeError, match="model: got int, want one Module"):
        memory.budget("8MiB", model=3, optimizer=optimizer)
    with pytest.raises(TypeError, match="bring_back: got 'yes', want True or False"):
        memory.budget("8MiB", model=net, optimizer=optimizer, bring_back="yes")  # type: ignore[arg-type]
    assert not any(type(p) is not cugrad.nn.Parameter for p in net.parameters())


def test_a_step_behind_which_no_places_fit_is_whole() -> None:
    """The error comes out of the optimizer's step, names what is enough, and a loop goes on."""

    def losses(share: float | None) -> tuple[list[float], int]:
        cugrad.manual_seed(0)
        net = deep(64, 6).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        x, seen, limit, host, behind = cugrad.rand(128, 64, device="simulated"), [], None, 0, 0
        if share is not None:
            nbytes = sum([p.nbytes for p in net.parameters()])
            limit, host = in_use() + int(4 * share * nbytes), nbytes
        while len(seen) < 6:
            context: Any = contextlib.nullcontext() if limit is None else memory.budget(
                limit, model=net, optimizer=optimizer, host_limit=host, bring_back=True
            )  # fmt: skip
            try:
                with context as plan:
                    while len(seen) < 6:
                        optimizer.zero_grad()
                        loss = net(x).square().mean()
                        loss.backward()
                        seen.append(loss.item())
                        optimizer.step()
                assert limit is None or plan.report()["peak"] <= limit
            except memory.BudgetError as error:
                behind += 1 if seen else 0
                host = int(float(str(error).split("at least ")[1].split()[0]) * 1025)
        return seen, behind

    expected, _ = losses(None)
    assert losses(0.8) == (expected, 1)


def test_a_host_that_is_too_small_is_helped_by_the_disk(tmp_path: Any) -> None:
    losses, weights, taken = plainly("linear", 3)
    limit = (in_use() + taken) // 2

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(
            limit, model=net, optimizer=optimizer, host_limit="1MiB", disk=tmp_path
        )

    with simulated.configured(policy="random", seed=2):
        result = trained("linear", 16, 3, within)
    assert result[0] == losses and same(result[1], weights)
    assert result[3].report()["states"]["places"]["states"] == "disk"


@pytest.mark.parametrize(("limit", "host"), [("64MiB", "1MiB"), ("64MiB", 0), (0.75, "2MiB")])
def test_a_host_has_what_the_device_has_no_room_for(limit: Any, host: Any) -> None:
    """And no more: where all fits the device, a host with nothing will do."""
    losses, weights, taken = plainly("linear", 3)
    limit = in_use() + int(limit * taken) if isinstance(limit, float) else limit

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer, host_limit=host)

    result = trained("linear", 16, 3, within)
    assert result[0] == losses and same(result[1], weights)
    report = result[3].report()
    assert report["peak"] <= report["limit"]
    assert sum(report["states"]["elsewhere"].values()) <= 2 << 20


def test_states_of_a_large_tensor_need_no_room_for_all_of_them() -> None:
    """Of a weight of 1 MiB there are the gradient and, in pieces, a third of a MiB of states each
    way: the device has 3.5 MiB.
    """

    def losses(limit: float | None) -> list[float]:
        cugrad.manual_seed(0)
        net = cugrad.nn.Sequential(cugrad.nn.Embedding(4096, 64), cugrad.nn.Linear(64, 64))
        net.to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        words = cugrad.arange(64, device="simulated")
        gc.collect()
        DEVICE.synchronize()
        DEVICE.empty_cache()
        others = DEVICE.memory_allocated() - sum([p.nbytes for p in net.parameters()])
        limited: Any = None if limit is None else int(limit + others)
        budget: Any = cugrad.enable_grad() if limit is None else memory.budget(
            limited, model=net, optimizer=optimizer
        )  # fmt: skip
        seen = []
        with simulated.configured(**({} if limit is None else {"capacity": limited})), budget:
            for _ in range(4):
                optimizer.zero_grad()
                loss = net(words).square().mean()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        return seen

    assert losses(3.5 * 2**20) == losses(None)


def test_an_evaluation_holds_no_weights() -> None:
    """What computes without gradients has its weights come and leave, too."""
    cugrad.manual_seed(0)
    net = deep(192, 10).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(16, 192, device="simulated")
    nbytes = sum([p.nbytes for p in net.parameters()])
    gc.collect()
    DEVICE.synchronize()
    limit = DEVICE.memory_allocated() - nbytes // 4
    with memory.budget(limit, model=net, optimizer=optimizer) as plan:
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            gc.collect()
            before = DEVICE.memory_allocated()
            y = x + 0
            with cugrad.no_grad():
                for layer in net:
                    y = y + layer(y)
            assert DEVICE.memory_allocated() < before + nbytes // 3
        report = plan.report()
    assert report["states"]["places"]["weights"] == "host" and report["steps_followed"] == 3
    # what other places have had before counts for those that took it over
    assert report["states"]["moved"]["weights"]["moved_back"] > 3 * nbytes
    assert report["peak"] <= limit
    with memory.offload_states(net, optimizer):
        pass


def test_an_evaluation_over_the_limit_is_not_silent() -> None:
    """Nor is anything else that no step is planned for; a step itself is within it."""
    cugrad.manual_seed(0)
    net = deep(192, 8).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x, many = (cugrad.rand(rows, 192, device="simulated") for rows in (16, 2048))
    told = pytest.warns(UserWarning, match="over its limit of 4 MiB, but not in a forward")
    plan = memory.budget("4MiB", model=net, optimizer=optimizer, bring_back=True)
    with told, plan:
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        assert plan.report()["peak"] <= 4 << 20
        with cugrad.no_grad():
            net(many)
    assert plan.peak() > 4 << 20


def test_masters_are_within_the_limit() -> None:
    """A model in 16 bits trains in float32, and its places count the masters."""

    def losses(limit: str | None) -> list[float]:
        cugrad.manual_seed(0)
        layers = [cugrad.nn.Linear(256, 256) for _ in range(5)]
        net = cugrad.nn.Sequential(*layers).to("simulated", cugrad.bfloat16)
        optimizer = cugrad.optim.Adam(net.parameters())
        x = cugrad.ones(16, 256, device="simulated", dtype=cugrad.bfloat16)
        context: Any = (
            memory.offload_states(net, optimizer, masters="float32") if limit is None
            else memory.budget(limit, model=net, optimizer=optimizer, masters="float32")
        )  # fmt: skip
        seen = []
        with context as plan:
            for _ in range(4):
                optimizer.zero_grad()
                loss = net(x).float().square().mean()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        if limit is not None:
            report = plan.report()
            assert report["peak"] <= report["limit"]
            assert report["states"]["bytes"]["states"] == 3 * 4 * 256 * 256 * 5
        return seen

    assert losses("3MiB") == losses(None)


def test_a_model_on_the_cpu_goes_to_the_device_that_is_named() -> None:
    def losses(limit: str | None) -> list[float]:
        cugrad.manual_seed(0)
        net = cugrad.nn.Sequential(*deep(256, 8), cugrad.nn.BatchNorm1d(256))
        x = cugrad.arange(16 * 256).reshape(16, 256).float().sin().to("simulated")
        if limit is None:
            net = net.to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        context: Any = (
            cugrad.enable_grad() if limit is None
            else memory.budget(limit, model=net, optimizer=optimizer, device="simulated")
        )  # fmt: skip
        seen = []
        with context:
            for _ in range(4):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        assert {p.device.type for p in [*net.parameters(), *net.buffers()]} == {"simulated"}
        return seen

    assert losses("6MiB") == losses(None)


@pytest.mark.parametrize("host", [2e9, 1e13])
def test_a_step_takes_what_was_forecast_of_it(host: float) -> None:
    """Of each choice, in a loop that never waits: most of its copies and the host's work go on
    beside backward.
    """
    limit = in_use() + 2 * plainly("long", 3, clips=False)[2] // 3
    rates = {"host": host, "to_host": 1e9, "to_device": 1e9, "policy": "timed"}

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer, step="during backward")

    with simulated.configured(**rates):
        plan = trained("long", 16, 3, within, clips=False)[3]
    states = plan.report()["states"]
    assert len(states["candidates"]) > 3
    number = {key: k for k, (key, *_) in enumerate(plan._states.inventory.params)}
    pairs = list(zip(plan._states.tried, states["candidates"], strict=True))
    for chosen, (name, forecast, _) in pairs[host > 1e12 :: 4]:
        net = NETWORKS["long"]().to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        x, marks = cugrad.rand(16, 192, device="simulated"), []
        placed = memory.offload_states(
            net, optimizer, window=chosen.window, min_bytes=1 << 10, step=chosen.step,
            **chosen.places,
        )  # fmt: skip
        stay = {number[key] for key in chosen.stay}
        placed.stay = frozenset(id(p) for k, p in enumerate(net.parameters()) if k in stay)
        with simulated.configured(**rates), placed:
            for _ in range(6):
                marks.append(DEVICE.event(timing=True))
                DEVICE.current_stream().record_event(marks[-1])
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            DEVICE.synchronize()
        seconds = marks[3].elapsed_time(marks[5]) / 2e3
        roomy = chosen.window >= choosing.PARTS[0] * chosen.layout.most["weights"][chosen.away]
        least, most = (0.8, 1.25) if roomy else (0.7, 1.4)  # how it waits for room is not foreseen
        assert least * forecast < seconds < most * forecast, (name, forecast / seconds)


def settled(plan: Any) -> dict[str, str]:
    """The places on which a budget has settled."""
    assert plan._states.settled
    places: dict[str, str] = plan.report()["states"]["places"]
    return places


def test_of_choices_that_are_as_fast_the_one_that_moves_least_is_taken() -> None:
    """Where computing takes longer than all copies, forecasts of all are that of computing."""
    losses, weights, taken = plainly("linear", 16, clips=False)
    limit = in_use() + 2 * taken // 3

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer)

    with simulated.configured(flops={"float32": 1e9}, host=1e13, policy="timed"):
        result = trained("linear", 16, 16, within, clips=False)
    assert result[0] == losses and same(result[1], weights) and result[2] <= limit
    states = result[3].report()["states"]
    assert settled(result[3])["states"] == "host"
    seconds = [seconds for _, seconds, _ in states["candidates"]]
    assert len(seconds) > 2 and max(seconds) < 1.05 * min(seconds)


def test_a_choice_that_takes_longer_than_was_forecast_is_revised(monkeypatch: Any) -> None:
    """Another one is tried, whose forecast is below what was measured; the faster one stays."""
    forecast = choosing.Forecasts.of

    def too_good(self: Any, candidate: Any, *args: Any) -> Any:
        result = forecast(self, candidate, *args)
        return result if candidate.places["states"] == "host" else result._replace(seconds=1e-9)

    losses, weights, taken = plainly("linear", 16, clips=False)
    limit = in_use() + taken // 2

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer)

    monkeypatch.setattr(choosing.Forecasts, "of", too_good)
    rates = {"host": 1e13, "to_host": 1e9, "to_device": 1e9, "policy": "timed"}
    with simulated.configured(**rates):
        result = trained("linear", 16, 16, within, clips=False)
    assert result[0] == losses and same(result[1], weights) and result[2] <= limit
    measured = result[3].report()["states"]["measured"]
    assert settled(result[3])["states"] == "host" and len(measured) > 1
    best = str(result[3]._states.chosen)
    assert measured[best] == min(measured.values())


def test_no_more_is_elsewhere_than_has_to_be() -> None:
    """Under a limit that is a little too small, a part of the states leaves."""
    losses, weights, taken = plainly("linear", 3)
    limit = in_use() + 9 * taken // 10

    def within(net: Any, optimizer: Any) -> Any:
        return memory.budget(limit, model=net, optimizer=optimizer)

    with simulated.configured(host=1e13):
        result = trained("linear", 16, 3, within, 1.05 * limit)
    assert result[0] == losses and same(result[1], weights) and result[2] <= limit
    states, chosen = result[3].report()["states"], result[3]._states.chosen
    assert states["places"]["states"] == "host"
    assert 0 < chosen.away < chosen.layout.count
    assert 0 < states["elsewhere"]["states"] < states["bytes"]["states"]


def test_its_report_has_that_of_the_places() -> None:
    """Inside and behind the context, and so are its steps that have failed."""
    cugrad.manual_seed(0)
    net = deep(192, 8).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(16, 192, device="simulated")

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    with memory.budget("3MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        for _ in range(6):
            step()
        assert plan.unfinished() == []
        with pytest.raises(RuntimeError, match="no step has ended early"):
            plan.finish_step()
        inside = plan.report(tokens=16)
    for report in (inside, plan.report(tokens=16)):
        moved = report["states"]["moved"]
        assert moved["states"]["bytes"] > 0 and moved.timeline["device"]
        assert moved.step["tokens_per_second"] > 0 and moved.step["over_bound"] >= 1
        for words in ("tokens a second", "\nbound ", "\nlink, in ", "\ntraining state "):
            assert words in str(report)
    assert len(plan.report().plot().axes) == 2
    assert all(type(p) is cugrad.nn.Parameter for p in net.parameters())


def test_a_step_that_has_failed_is_finished(monkeypatch: Any) -> None:
    cugrad.manual_seed(0)
    net = deep(192, 8).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x, update, left = cugrad.rand(16, 192, device="simulated"), optimizer._update, [2]

    def fails(*args: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError("the second bucket fails")
        update(*args)

    with memory.budget("2MiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        optimizer.zero_grad()
        net(x).square().mean().backward()
        monkeypatch.setattr(optimizer, "_update", fails)
        monkeypatch.setattr(optimizer, "_notes", False, raising=False)
        with pytest.raises(OSError):
            optimizer.step()
        (step,) = plan.unfinished()
        assert step.behind and step.before
        plan.finish_step()
        assert plan.unfinished() == []


def test_a_model_without_elements_is_refused() -> None:
    net = cugrad.nn.Linear(8, 8, device="meta")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="on the meta device, .* memory.materialise"):
        memory.budget("1MiB", model=net, optimizer=optimizer, device="simulated")


def test_a_host_is_helped_by_the_disk(tmp_path: Any) -> None:
    """Of a budget of the host itself only what files have is elsewhere."""

    def losses(limit: str | None) -> list[float]:
        cugrad.manual_seed(0)
        net = deep(256, 8)
        optimizer, seen = cugrad.optim.Adam(net.parameters()), []
        context: Any = cugrad.enable_grad() if limit is None else memory.budget(
            limit, model=net, optimizer=optimizer, disk=tmp_path
        )  # fmt: skip
        with context as plan:
            for _ in range(3):
                optimizer.zero_grad()
                loss = net(cugrad.ones(4, 256)).square().mean()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        if limit is not None:
            assert plan.report()["states"]["places"]["states"] == "disk"
        return seen

    assert losses("6MiB") == losses(None)


def test_a_loop_whose_first_steps_are_of_two_kinds() -> None:
    """What is learned of one step, as where weights are behind it, is no plan of another one."""

    def run(is_planned: bool) -> list[Any]:
        cugrad.manual_seed(0)
        net = deep(32, 3).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters(), lr=0.01)
        x = cugrad.rand(8, 32, device="simulated")
        context: Any = contextlib.nullcontext()
        if is_planned:
            context = memory.budget("200KiB", model=net, optimizer=optimizer)
        seen = []
        with context:
            for _ in range(6):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                seen += [loss.item(), *[copy.deepcopy(net)(x).sum().item() for _ in range(2)]]
        return [seen, [arrays_of(p) for p in net.parameters()]]

    assert same(run(True), run(False))


def test_a_model_whose_weights_were_made_within_is_let_go() -> None:
    """By a step that was measured: all that it has seen made may stay where it is."""
    net = deep(32, 2).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(8, 32, device="simulated")
    with memory.budget("1MiB", model=net, optimizer=optimizer):
        for _ in range(3):
            net(x).square().mean().backward()
            optimizer.step()
            net.double().float()
    seen = [weakref.ref(net), weakref.ref(optimizer)]
    del net, optimizer
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


def test_a_step_of_a_thread_that_is_not_in_the_budget_is_an_error() -> None:
    """What its ops save is not seen, so that a limit would be exceeded and nothing said."""
    cugrad.manual_seed(0)
    net = deep(48, 2).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    before = arrays_of([*net.parameters()])
    x = cugrad.rand(4, 48, device="simulated")

    def step() -> None:
        net(x).square().mean().backward()
        optimizer.step()

    with memory.budget("64MiB", model=net, optimizer=optimizer), ThreadPoolExecutor(1) as another:
        with pytest.raises(RuntimeError, match="its step run in another thread"):
            another.submit(step).result()
        assert same(arrays_of([*net.parameters()]), before)
        step()
    with ThreadPoolExecutor(1) as another:  # and behind it as ever
        another.submit(step).result()
    assert not optimizer.state[net[0].weight]["exp_avg"].isnan().any()
