"""A tensor whose states are more than their window is stepped in pieces, and to the same end."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.states.pieces import Pieces
from cugrad.memory.states.within_backward.beforehand import Beforehand
from tests.memory.states.training import PLACES, Training, deep, same, train, values_of

DEVICE: Any = backends.get("simulated")
STREAMED, DURING = PLACES["all streamed"], {"step": "during backward"}
SMALL: Any = {"window": "1KiB"}  # as much as one of the weights


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces there were."""
    seen, step = [0], Pieces._step

    def counted(self: Any, *args: Any) -> None:
        seen[0] += 1
        step(self, *args)

    monkeypatch.setattr(Pieces, "_step", counted)
    return seen


@pytest.mark.parametrize(
    ("name", "settings", "features", "places"),
    [
        ("Adam", {"amsgrad": True}, ("clip", "scaler", "tied"), {"states": "stream"}),
        ("AdamW", {"fused": True}, ("accumulate", "frozen", "groups"), STREAMED),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, ("clip values", "zeros"), STREAMED),
        ("NAdam", {}, ("closure",), PLACES["all on disk"]),
        ("Rprop", {}, (), {**STREAMED, **DURING}),
        ("Adagrad", {}, ("tied",), {**STREAMED, "host_limit": 0}),
    ],
)
def test_training_is_the_same(
    name: str, settings: Any, features: Any, places: Any, count: list[int]
) -> None:
    plain = train(name, settings, features, None)
    with simulated.configured(policy=["random", "latest"][len(name) % 2], seed=len(name)):
        result = train(name, settings, features, places, **SMALL)
    assert same(result, plain) and count[0] > 30


def test_states_are_in_the_order_in_which_the_optimizer_makes_them(count: list[int]) -> None:
    net = cugrad.nn.Linear(16, 16, bias=False).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    with memory.offload_states(net, optimizer, states="stream", min_bytes=0, **SMALL):
        for _ in range(2):
            net(cugrad.ones(2, 16, device="simulated")).sum().backward()
            optimizer.step()
            assert list(optimizer.state[net.weight]) == ["step", "exp_avg", "exp_avg_sq"]
    assert count[0]


def test_optimizers_that_look_at_whole_tensors_get_them(count: list[int]) -> None:
    """By their rule, or by an `_update` that a program has written."""

    class Own(cugrad.optim.Adam):
        def _update(self, params: Any, group: Any) -> None:
            for param in params:
                param._grad.div_(param._grad.norm())
            super()._update(params, group)

    assert cugrad.optim.Adam._by_element and not Own._by_element
    for maker in (Own, cugrad.optim.Adafactor):
        net = cugrad.nn.Linear(16, 16).to("simulated")
        optimizer = maker(net.parameters())
        with memory.offload_states(net, optimizer, min_bytes=512, **STREAMED, **SMALL):
            net(cugrad.ones(2, 16, device="simulated")).sum().backward()
            optimizer.step()
    assert count[0] == 0


@pytest.mark.parametrize("weights", ["device", "host"])
@pytest.mark.parametrize("masters", [None, "float32"])
def test_no_more_than_the_window_is_on_the_device(weights: str, masters: Any) -> None:
    """Of a weight with states of twice its size, or six times, a fourth of it."""
    rows, width = 2048, 16
    dtype = cugrad.float32 if masters is None else cugrad.bfloat16
    embedding = cugrad.nn.Embedding(rows, width).to("simulated", dtype)
    nbytes = embedding.weight.nbytes
    optimizer = cugrad.optim.Adam(embedding.parameters())
    words = cugrad.arange(8, device="simulated")
    options: Any = {"weights": weights, "gradients": "host", "states": "stream"}
    placed = memory.offload_states(
        embedding, optimizer, window=nbytes // 4, masters=masters, **options
    )
    with placed:
        for _ in range(3):
            embedding(words).float().square().sum().backward()
            gc.collect()
            DEVICE.synchronize()
            before = DEVICE.memory_allocated() - nbytes * (weights == "device")
            DEVICE.reset_peak_memory_stats()
            optimizer.step()
            DEVICE.synchronize()
            peak = DEVICE.max_memory_allocated()
            optimizer.zero_grad()
        states = placed.report()["states"]
    assert states["most_on_device"] <= nbytes // 4 < states["bytes"] / 8 + 1
    # the weight, its gradient, the window, and what the update of a piece has of its own
    assert peak - before < (2.7 if masters is None else 2.9) * nbytes


@pytest.mark.parametrize("places", [{"states": "stream"}, STREAMED, PLACES["all on disk"]])
def test_a_piece_that_fails_leaves_all_as_before(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Beforehand, "takes", lambda *args: False)  # but behind backward
    training, plain = [Training("Adam", {"lr": 0.1}, (), "simulated") for _ in range(2)]
    optimizer = training.optimizer
    update, calls = type(optimizer)._update, [0]

    def failing(params: Any, group: Any) -> None:
        calls[0] += 1
        if calls[0] == 6:
            raise MemoryError("no room")
        update(optimizer, params, group)

    options: Any = {**places, **SMALL, "min_bytes": 512}
    with memory.offload_states(training.net, optimizer, **options) as placed:
        for step in range(3):
            plain.step(step)
            before = values_of(training)
            optimizer._update = failing if step == 1 else update.__get__(optimizer)
            if step != 1:
                training.step(step)
                continue
            with pytest.raises(MemoryError):
                training.step(step)
            (told,) = placed.unfinished()
            now, behind = values_of(training), values_of(plain)
            for k, (param, _) in enumerate(training.net.named_parameters()):
                assert same(now[k], (behind if param in told.behind else before)[k])
            assert told.before
            optimizer._update = update.__get__(optimizer)
            placed.finish_step()
            training.schedule.step()
        assert same(values_of(training), values_of(plain))


@pytest.mark.parametrize("name, settings", [
    ("Adam", {}), ("SGD", {"momentum": 0.9}), ("AdamW", {"amsgrad": True}),
])  # fmt: skip
@pytest.mark.parametrize("flops", [6e13, 4e10])
@pytest.mark.parametrize("weights", ["device", "host"])
def test_a_budget_foresees_how_long_pieces_take(
    name: str, settings: Any, weights: str, flops: float
) -> None:
    """Of each window, down to those in which a tensor's states have no room, so that what the host
    gives the device for many small pieces takes longer than all copies; and of weights that are
    on the device, of which a copy leaves before, to be put back.
    """
    rates = {"host": 2e9, "to_host": 1e9, "to_device": 1e9, "policy": "timed"}
    rates |= {"flops": {"float32": flops}}

    def takes(net: Any, optimizer: Any, steps: int) -> float:
        x, marks = cugrad.rand(16, 192, device="simulated"), []
        for _ in range(steps):
            marks.append(DEVICE.event(timing=True))
            DEVICE.current_stream().record_event(marks[-1])
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        DEVICE.synchronize()
        return float(marks[-3].elapsed_time(marks[-1])) / 2e3

    def start() -> tuple[Any, Any]:
        net = deep(192, 6).to("simulated")
        return net, getattr(cugrad.optim, name)(net.parameters(), **settings)

    with simulated.configured(**rates):
        net, optimizer = start()
        limit = DEVICE.memory_allocated() + 3 * sum([p.nbytes for p in net.parameters()])
        with memory.budget(limit, model=net, optimizer=optimizer) as plan:
            takes(net, optimizer, 3)
        states = plan._states
        inventory, seen = states.inventory, states._seen
        forecasts, parts = states._forecasts(seen.step, 1), inventory.layout.count
        layout = inventory.layout.sorted(lambda part: part.whole)
        places = {"weights": weights, "gradients": weights, "states": "stream"}
        windows = inventory.windows(places, layout, parts)
        assert min(windows) < layout.most["weights"][-1] < max(windows)
        largest = layout.most["weights"][-1]
        roomy = (
            windows[::3] if weights == "device" else []
        )  # what all weights' window saves is more
        for window in [*roomy, largest, 3 * largest // 2, windows[-1]]:
            chosen = inventory.at(places, "behind backward", layout, parts, window)
            forecast = forecasts.of(chosen, seen.computing, 0).seconds
            net, optimizer = start()
            with memory.offload_states(net, optimizer, window=window, min_bytes=1 << 10, **places):
                took = takes(net, optimizer, 6)
            assert 0.75 * forecast < took < 1.3 * forecast, (window, took / forecast)
