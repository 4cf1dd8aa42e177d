"""The step begins where gradients are whole, while the device is in backward still; whatever uses
a parameter, or changes its gradient, between backward and the step, is before it all the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends import simulated
from cugrad.errors import RaceError
from cugrad.memory.states.moments import Moments
from tests.memory.states.training import arrays_of, same

PLACES: dict[str, dict[str, str]] = {
    "states host": {"states": "host"},
    "gradients, states host": {"gradients": "host", "states": "host"},
    "all host": {"weights": "host", "gradients": "host", "states": "host"},
}
Use = Callable[[Any, Any, Any], Any]
USES: dict[str, Use] = {}


def use(function: Use) -> Use:
    USES[function.__name__] = function
    return function


@use
def nothing(net: Any, x: Any, kept: Any) -> Any:
    pass


@use
def weights_are_read(net: Any, x: Any, kept: Any) -> Any:
    return [p * 2 for p in net.parameters()]


@use
def another_forward_runs(net: Any, x: Any, kept: Any) -> Any:
    with cugrad.no_grad():
        return net(x)


@use
def views_of_weights_are_read(net: Any, x: Any, kept: Any) -> Any:
    return [view * 2 for view in kept]


@use
def aliases_are_read(net: Any, x: Any, kept: Any) -> Any:
    return [p.data * 2 for p in net.parameters()]


@use
def weights_are_changed(net: Any, x: Any, kept: Any) -> Any:
    with cugrad.no_grad():
        for p in net.parameters():
            p.mul_(0.5)


@use
def gradients_are_changed(net: Any, x: Any, kept: Any) -> Any:
    for p in net.parameters():
        p.grad.mul_(0.5)


@use
def gradients_are_changed_by_an_alias(net: Any, x: Any, kept: Any) -> Any:
    for p in net.parameters():
        p.grad.data.mul_(0.5)


@use
def gradients_are_replaced(net: Any, x: Any, kept: Any) -> Any:
    for p in net.parameters():
        p.grad = p.grad * 0.5


@use
def gradients_are_clipped(net: Any, x: Any, kept: Any) -> Any:
    cugrad.nn.utils.clip_grad_norm_(net.parameters(), 0.01)


@use
def another_pass_adds(net: Any, x: Any, kept: Any) -> Any:
    net(x).square().mean().backward()


@use
def the_step_is_left_out(net: Any, x: Any, kept: Any) -> Any:
    return "no step"


def trained(places: Any, uses: Use, holds: bool = False, passes: int = 1) -> tuple[Any, Any]:
    """Weights, gradients and states behind steps of a loop that never waits, and the report; in the
    last ones something happens between backward and the step.
    """
    gc.collect()
    cugrad.manual_seed(0)
    stack = [cugrad.nn.Linear(16, 16, bias=False) for _ in range(5)]
    net = cugrad.nn.Sequential(*stack).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x, seen = cugrad.ones(4, 16, device="simulated"), []

    def loop() -> None:
        for step in range(6):
            kept = [p.detach()[:1] for p in net.parameters()] if holds else []
            optimizer.zero_grad()
            for _ in range(passes):
                net(x).square().mean().backward()
            found = uses(net, x, kept) if step > 2 else None
            del kept
            if found == "no step":
                continue
            seen.append(found)
            optimizer.step()

    report = None
    if places is None:
        loop()
    else:
        placed = memory.offload_states(net, optimizer, window="3KiB", min_bytes=512, **places)
        with placed:
            loop()
            report = placed.report()
    states = [optimizer.state[p] for p in net.parameters()]
    grads = [p.grad for p in net.parameters()]
    return arrays_of([list(net.parameters()), grads, states, seen]), report


@pytest.mark.parametrize("policy", ["latest", "earliest", "random"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", USES)
def test_what_is_done_between_backward_and_the_step_is_before_it(
    name: str, places: str, policy: str
) -> None:
    """The same, bit for bit, and no race, in whatever order streams run."""
    holds = name == "views_of_weights_are_read"
    with simulated.configured(simulated.H200, policy=policy):
        plain, _ = trained(None, USES[name], holds)
        there, _ = trained(PLACES[places], USES[name], holds)
    assert same(plain, there)


@pytest.mark.parametrize("passes", [1, 3])
def test_a_gradient_leaves_once_for_the_hosts_step(passes: int) -> None:
    """When the last pass has added to it, of as many as the step before had."""
    plain, _ = trained(None, nothing, passes=passes)
    there, report = trained(PLACES["states host"], nothing, passes=passes)
    assert same(plain, there)
    assert report["gradients"]["moved_out"] == 6 * 5 * 16 * 16 * 4


def test_a_use_that_was_not_noticed_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a moment void is needed."""
    monkeypatch.setattr(
        Moments, "of", lambda self, param: self.known[id(param)].event if id(param) in self.known
        else None,
    )  # fmt: skip
    with simulated.configured(simulated.H200, policy="latest"), pytest.raises(RaceError):
        trained(PLACES["states host"], weights_are_read)
