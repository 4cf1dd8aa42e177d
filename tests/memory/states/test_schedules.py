"""What a step takes with states elsewhere, in the virtual time of a modelled device: the same in
each run, whatever else the machine does.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.states import context

DEVICE: Any = backends.get("simulated")
SCALE = 4096.0  # bytes that one stands for
ALL: dict[str, str] = {"weights": "host", "gradients": "host"}
STEPS = 6


def layers(width: int = 64, depth: int = 12) -> Any:
    stack = [cugrad.nn.Linear(width, width, bias=False) for _ in range(depth)]
    return cugrad.nn.Sequential(*stack)


def mark() -> Any:
    event = DEVICE.event(timing=True)
    DEVICE.current_stream().record_event(event)
    return event


def trained(
    make: Callable[[], Any], x: Any, window: int | None, places: dict[str, str],
    waits: bool = False, steps: int = STEPS,
) -> tuple[list[float], Any]:  # fmt: skip
    """Seconds of each step but the last, from its begin to that of the next, and the report."""
    gc.collect()
    cugrad.manual_seed(0)
    net = make().to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = x.to("simulated")
    placed = memory.offload_states(net, optimizer, window=window, min_bytes=512, **places)
    marks = []
    with simulated.configured(simulated.H200, policy="timed", scale=SCALE), placed:
        for _ in range(steps):
            marks.append(mark())
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            if waits:
                DEVICE.synchronize()
        DEVICE.synchronize()
        report = placed.report()
    return [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])], report


def test_a_loop_that_never_waits_is_no_slower() -> None:
    """A host that is far ahead of the device cannot know what has left it by now. What was made
    in the compute stream's memory, as states are in the first step, comes to a lane's all the same.
    """
    places = {**ALL, "states": "stream", "step": "during backward"}
    x, window = cugrad.ones(256, 64), 6 * 64 * 64 * 4
    ahead, _ = trained(layers, x, window, places)
    beside, _ = trained(layers, x, window, places, waits=True)
    assert ahead[-1] == pytest.approx(ahead[3])
    assert ahead[-1] <= 1.01 * beside[-1]


class Attention(cugrad.nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.inner = cugrad.nn.MultiheadAttention(32, 2, bias=False, batch_first=batch_first)

    def forward(self, x: Any) -> Any:
        return x + self.inner(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("batch_first", [False, True])
def test_weights_of_attention_leave_behind_their_layer(batch_first: bool) -> None:
    """Nothing that backward keeps is a part of one, by which all would stay until then."""
    make = lambda: cugrad.nn.Sequential(*[Attention(batch_first) for _ in range(12)])
    window = 3 * (3 * 32 * 32 * 4)
    _, report = trained(make, cugrad.ones(2, 4, 32), window, {"weights": "host"})
    assert report["weights"]["most_on_device"] <= window < report["weights"]["bytes"] / 4


def test_gradients_come_ahead_of_the_step_that_reads_them() -> None:
    """Those that it has read leave at once: so there is room."""
    x, window = cugrad.ones(256, 64), 4 * 64 * 64 * 4
    _, report = trained(layers, x, window, {**ALL, "states": "stream"})
    gradients = report["gradients"]
    assert gradients["most_on_device"] <= 5 * 64 * 64 * 4
    assert gradients["moved_back"] <= STEPS * gradients["bytes"]
    assert gradients["on_demand"] <= gradients["moved_back"] / 4


def test_weights_that_the_host_has_stepped_come_before_the_next_forward() -> None:
    """As those that stay on the device do: all that is used first, as far as the window goes."""
    x, places = cugrad.ones(256, 64), {**ALL, "states": "host"}
    size = 12 * 64 * 64 * 4
    whole, _ = trained(layers, x, size, places)
    device, _ = trained(layers, x, None, {**places, "weights": "device"})
    assert whole[-1] <= 1.02 * device[-1]


@pytest.mark.parametrize("depth", [3, 5, 6, 16])
def test_a_window_that_nearly_holds_all_weights_holds_them(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else four of the largest tensors; then no weight comes that no one has changed elsewhere."""
    monkeypatch.setattr(context, "LEAST", 512)
    make, weight = lambda: layers(64, depth), 64 * 64 * 4
    places = {**ALL, "states": "stream", "step": "during backward"}
    _, report = trained(make, cugrad.ones(64, 64), None, places)
    weights = report["weights"]
    assert weights["limit"] == max(
        4 * weight, depth * weight if depth <= 5 else weight * depth // 2
    )
    assert weights["most_on_device"] <= weights["limit"] + weight
    assert (weights["moved_back"] <= 2 * weights["bytes"]) == (depth <= 5)  # once, at the begin


def test_a_window_grows_with_the_model_up_to_a_part_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a deep network's backward leaves behind for the next forward grows with its depth."""
    monkeypatch.setattr(context, "LEAST", 512)
    make, weight = lambda: layers(16, 20), 16 * 16 * 4
    places, x = {**ALL, "states": "stream", "step": "during backward"}, cugrad.ones(4, 16)
    limit_of = lambda: trained(make, x, None, places, steps=2)[1]["weights"]["limit"]
    assert limit_of() == 20 * weight // 2
    monkeypatch.setattr(DEVICE, "memory_limit", lambda: 9 * 6 * weight)
    assert limit_of() == 9 * weight
    monkeypatch.setattr(DEVICE, "memory_limit", lambda: 6 * weight)
    assert limit_of() == 4 * weight
    monkeypatch.undo()
    monkeypatch.setattr(context, "LEAST", 512)
    places.pop("step")  # it is taken within backward all the same
    assert limit_of() == 20 * weight // 2
    places["states"] = "host"
    assert limit_of() == 4 * weight


def test_the_device_steps_while_it_is_in_backward_still() -> None:
    """On a stream of its own, each bucket as soon as its gradients are whole."""
    x, window, places = cugrad.ones(1024, 64), 8 * 64 * 64 * 4, {"states": "stream"}
    behind, report = trained(layers, x, window, places)
    during, _ = trained(layers, x, window, {**places, "step": "during backward"})
    assert behind[-1] <= 1.02 * during[-1]
    assert report["states"]["most_on_device"] <= window + 2 * 64 * 64 * 4


@pytest.mark.parametrize("kinds", [("weights", "gradients"), ("gradients",), ()])
def test_the_host_steps_while_the_device_is_in_backward_still(kinds: tuple[str, ...]) -> None:
    """The loop is ahead of the device when it calls `optimizer.step()`: what has arrived steps, and
    weights that live on the device are changed there as soon as backward has read them.
    """
    x, window = cugrad.ones(1024, 64), 4 * 64 * 64 * 4
    places = {**dict.fromkeys(kinds, "host"), "states": "host"}
    behind, _ = trained(layers, x, window, places)
    during, _ = trained(layers, x, window, {**places, "step": "during backward"})
    assert behind[-1] <= 1.05 * during[-1]
