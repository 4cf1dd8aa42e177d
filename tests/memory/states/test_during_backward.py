"""Steps that are taken while backward goes on do what those behind it do."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.states.home import Home
from tests.memory.states.training import Training, arrays_of, same, train, values_of

DEVICE: Any = backends.get("simulated")
DURING: Any = {"step": "during backward"}
PLACES: dict[str, Any] = {
    "all on the device": {},
    "states streamed": {"states": "stream"},
    "states on the host": {"states": "host"},
    "all on the host": {"weights": "host", "gradients": "host", "states": "host"},
    "all streamed": {"weights": "host", "gradients": "host", "states": "stream"},
    "all on disk": {"weights": "disk", "states": "disk"},
    "weights on disk": {"weights": "disk", "states": "host"},
}


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


@pytest.mark.parametrize(
    ("name", "place"),
    [*[("Adam", place) for place in PLACES], ("SGD", "all streamed"), ("SGD", "all on disk"),
     ("SGD", "states on the host"), ("NAdam", "all on the host"), ("RMSprop", "all on the host"),
     ("Adafactor", "states streamed"), ("NAdam", "all streamed")],
)  # fmt: skip
def test_training_is_the_same(name: str, place: str) -> None:
    settings = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    features = ("tied", "frozen", "groups") if name in ("Adam", "NAdam") else ("zeros",)
    plain = train(name, settings, features, None, steps=4)
    with simulated.configured(policy="random", seed=len(name + place)):
        result = train(name, settings, features, PLACES[place], steps=4, **DURING)
    assert same(result, plain)


@pytest.mark.parametrize("feature", ["clip", "clip values", "accumulate", "scaler", "closure"])
@pytest.mark.parametrize("place", ["states streamed", "all streamed", "all on the host"])
def test_a_loop_that_needs_all_gradients_is_refused_before_anything_changes(
    place: str, feature: str
) -> None:
    training = Training("Adam", {"lr": 0.1}, (feature,), "simulated")
    before = values_of(training)
    options = {"min_bytes": 512, "window": "3KiB", **PLACES[place], **DURING}
    with memory.offload_states(training.net, training.optimizer, **options):
        with pytest.raises(RuntimeError, match='leave out step="during backward"'):
            training.step(0)
        assert same(values_of(training), before)


def test_gradients_that_are_gone_are_errors_for_who_needs_them_later() -> None:
    training = Training("Adam", {"lr": 0.1}, (), "simulated")
    options = {"min_bytes": 512, "window": "3KiB", "states": "stream", **DURING}
    params = training.params
    with memory.offload_states(training.net, training.optimizer, **options):
        training.step(0)
        training.loss(1)
        gone = [p.grad for p in params if p.ndim == 2][-1]  # the last to be whole may wait
        assert gone.shape == (16, 16) and gone.device.type == "simulated"
        with pytest.raises(RuntimeError, match="this gradient is gone"):
            cugrad.nn.utils.clip_grad_norm_(params, 1.0)
        with pytest.raises(RuntimeError, match="this gradient is gone"):
            gone.sum()
        training.optimizer.zero_grad()
        with pytest.raises(RuntimeError, match="a second backward pass"):
            training.loss(2)
        training.optimizer.step()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in params)


def replace(param: Any) -> None:
    param.grad = cugrad.ones_like(param)


def scale(param: Any) -> None:
    param.grad = param.grad * 0.5


def drop(param: Any) -> None:
    param.grad = None


@pytest.mark.parametrize("change", [replace, scale, drop])
@pytest.mark.parametrize("place", ["all on the device", "states streamed", "weights on disk"])
def test_gradients_that_are_others_meanwhile_are_no_step_of_those_that_were(
    place: str, change: Any
) -> None:
    """In the first step it is refused before anything changes; later the loop is told at its step,
    or steps as without, if that of the parameter has not been taken.
    """
    options = {"min_bytes": 512, "window": "3KiB", **PLACES[place], **DURING}
    training = Training("Adam", {"lr": 0.1}, (), "simulated")
    before = values_of(training)
    with memory.offload_states(training.net, training.optimizer, **options):
        training.loss(0)
        change(training.params[0])
        with pytest.raises(RuntimeError, match="gradients are clipped, unscaled or changed before"):
            training.optimizer.step()
        assert same(values_of(training), before)

    def run(placed: bool) -> tuple[str, Any]:
        training, said = Training("Adam", {"lr": 0.1}, (), "simulated"), ""
        context: Any = (
            memory.offload_states(training.net, training.optimizer, **options)
            if placed else contextlib.nullcontext()
        )  # fmt: skip
        with context:
            for step in range(4):
                training.loss(step)
                try:
                    if step == 2:
                        for param in training.params:
                            change(param)
                    training.optimizer.step()
                except RuntimeError as error:
                    said = str(error)
                    training.optimizer.step()
        return said, values_of(training)

    said, result = run(True)
    assert "dropped or replaced" in said or "is gone" in said or same(result, run(False)[1])


def test_a_loop_keeps_nothing_of_gradients_that_are_gone() -> None:
    training = Training("Adam", {"lr": 0.1}, (), "simulated")
    counts = []
    options = {"min_bytes": 512, "window": "3KiB", "states": "stream", **DURING}
    with memory.offload_states(training.net, training.optimizer, **options):
        for step in range(6):
            training.step(step)
            gc.collect()
            counts.append(sum(isinstance(each, Home) for each in gc.get_objects()))
    assert counts[5] == counts[3], counts


def test_what_cannot_be_asked_for_is_said() -> None:
    net = cugrad.nn.Linear(2, 2)
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="step: got 'soon', want 'behind backward'"):
        memory.offload_states(net, optimizer, step="soon")


def test_gradients_take_no_more_room_than_a_bucket() -> None:
    """And the step is sooner over, by what the link has done meanwhile. The host's is as soon over
    behind backward: it begins with the first gradient that has arrived.
    """
    weight, count = 64 * 64 * 4, 16

    def run(rows: int, **options: Any) -> tuple[int, float, Any]:
        gc.collect()
        cugrad.manual_seed(0)
        layers = [cugrad.nn.Linear(64, 64, bias=False) for _ in range(count)]
        net = cugrad.nn.Sequential(*layers).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        x = cugrad.ones(rows, 64, device="simulated")
        options = {"states": "stream", **options}
        placed = memory.offload_states(net, optimizer, window=8 * weight, min_bytes=512, **options)
        with simulated.configured(simulated.H200, policy="timed", scale=4096.0), placed:
            for step in range(4):
                if step == 3:
                    gc.collect()
                    DEVICE.synchronize()
                    began = simulated.MACHINE.host_time
                    DEVICE.reset_peak_memory_stats()
                net(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            DEVICE.synchronize()
            took = simulated.MACHINE.host_time - began
            peak = DEVICE.max_memory_allocated()
        return peak, took, arrays_of(list(net.parameters()))

    behind, _, weights = run(1)
    during, _, same_weights = run(1, **DURING)
    assert same(weights, same_weights)
    assert during < behind - 8 * weight
    assert run(256, **DURING)[1] < run(256)[1]
    host = run(256, states="host")[1]
    assert host == pytest.approx(run(256, states="host", **DURING)[1], rel=0.01)


def test_compute_does_not_wait_for_what_leaves() -> None:
    """Where a window is full all the time, what leaves makes room for what comes without it."""
    cugrad.manual_seed(0)
    layers = [cugrad.nn.Linear(64, 64, bias=False) for _ in range(16)]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(16, 64, device="simulated")
    placed = memory.offload_states(
        net, optimizer, weights="host", states="stream", window=6 * layers[0].weight.nbytes,
        min_bytes=512, **DURING,
    )  # fmt: skip
    with simulated.configured(simulated.H200, policy="timed", scale=4096.0), placed:
        for step in range(4):
            if step == 3:
                DEVICE.synchronize()
                simulated.MACHINE.reset_time()
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        waits = [r for r in simulated.MACHINE.records if r.kind == "wait"]
    waited_for = {r.name for r in waits if r.stream == "default"}
    assert "wait for states to device" in waited_for  # the link is the slower one here
    assert "wait for to host" not in waited_for


def uneven(places: Any, steps: int = 5, learns: int = 3) -> tuple[float, Any, Any]:
    """A network of which one tensor in the middle is a third: the seconds of a step, from the
    begin of one to that of the next, and the last two reports.
    """
    cugrad.manual_seed(0)
    sizes = [64] * 6 + [256, 256] + [64] * 6
    layers = [cugrad.nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:])]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(256, 64, device="simulated")
    placed = memory.offload_states(net, optimizer, window="1MiB", min_bytes=512, **places)
    marks, reports = [], []
    with simulated.configured(simulated.H200, policy="timed", scale=4096.0), placed:
        placed.report()  # measures rates
        for _ in range(steps):
            marks.append(DEVICE.event(timing=True))
            DEVICE.current_stream().record_event(marks[-1])
            reports.append(placed.report())
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        marks[-1].synchronize()
    seconds = marks[learns - 1].elapsed_time(marks[-1]) / 1e3 / (steps - learns)
    return seconds, reports[-2], reports[-1]


@pytest.mark.parametrize("step", ["behind backward", "during backward"])
@pytest.mark.parametrize("weights", ["device", "host"])
def test_states_go_through_the_device_once_a_step_at_most(weights: str, step: str) -> None:
    places = {"states": "stream", "weights": weights, "step": step}
    _, before, after = uneven(places, steps=7)  # in the first ones all is made here, and leaves
    moved = {way: after["states"][way] - before["states"][way]
             for way in ("moved_back", "moved_out")}  # fmt: skip
    assert moved["moved_back"] <= moved["moved_out"] == after["states"]["bytes"]


def test_a_large_tensor_is_stepped_beside_the_rest_of_backward() -> None:
    """Not once those behind it have been sent, too."""
    seconds, report, _ = uneven({"states": "host", **DURING})
    host = 7 * report.parameters * 4 * 4096.0 / simulated.H200.host
    assert seconds < 1.5 * host


def test_in_a_deep_network_weights_come_twice_a_step() -> None:
    """However often each is used in it; and not much more often in a step of another order."""
    count, weight = 40, 16 * 16 * 4
    cugrad.manual_seed(0)
    layers = [cugrad.nn.Linear(16, 16, bias=False) for _ in range(count)]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(4, 16, device="simulated")
    placed = memory.offload_states(
        net, optimizer, weights="host", states="stream", window=16 * weight, min_bytes=512, **DURING
    )  # fmt: skip
    back: list[dict[str, int]] = []
    with placed:
        for _ in range(5):
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            report = placed.report()
            back.append({kind: report[kind]["moved_back"] // weight for kind in report})
    weights, states = [
        [b[kind] - a[kind] for a, b in zip(back, back[1:])] for kind in ("weights", "states")
    ]
    assert weights[0] < 5 * count  # the first one in which steps are taken within backward
    assert max(weights[1:]) <= 2 * count and max(states[1:]) <= 2 * count
