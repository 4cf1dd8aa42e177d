"""The step begins where gradients are whole, while the device is in backward still; whatever uses
a parameter, or changes its gradient, between backward and the step, is before it all the same.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends import simulated
from cugrad.errors import RaceError
from cugrad.memory.states.within_backward.moments import Moments
from tests.memory.states.training import arrays_of, clip_one_by_one, same

PLACES: dict[str, dict[str, str]] = {
    "states host": {"states": "host"},
    "gradients, states host": {"gradients": "host", "states": "host"},
    "all host": {"weights": "host", "gradients": "host", "states": "host"},
    "states stream": {"states": "stream"},
    "all stream": {"weights": "host", "gradients": "host", "states": "stream"},
}
STEPS, LAYERS = 4, 4


class Loop:
    """What a program has at hand between backward and the step."""

    def __init__(self) -> None:
        cugrad.manual_seed(0)
        stack = [cugrad.nn.Linear(16, 16, bias=False) for _ in range(LAYERS)]
        self.net = cugrad.nn.Sequential(*stack).to("simulated")
        self.params = list(self.net.parameters())
        self.optimizer = cugrad.optim.Adam(self.params)
        self.x = cugrad.ones(4, 16, device="simulated")
        self.kept: list[Any] = []

    @property
    def states(self) -> list[Any]:
        return [self.optimizer.state[p]["exp_avg"] for p in self.params]


Use = Callable[[Loop], Any]
USES: dict[str, Use] = {}


def use(function: Use) -> Use:
    USES[function.__name__] = function
    return function


@use
def nothing(loop: Loop) -> Any:
    pass


@use
def weights_are_read(loop: Loop) -> Any:
    return [p * 2 for p in loop.params]


@use
def another_forward_runs(loop: Loop) -> Any:
    with cugrad.no_grad():
        return loop.net(loop.x)


@use
def views_are_read(loop: Loop) -> Any:
    return [view * 2 for view in loop.kept]


@use
def aliases_are_read(loop: Loop) -> Any:
    return [p.data * 2 for p in loop.params]


@use
def weights_are_changed(loop: Loop) -> Any:
    with cugrad.no_grad():
        for p in loop.params:
            p.mul_(0.5)


@use
def gradients_are_changed(loop: Loop) -> Any:
    for p in loop.params:
        p.grad.mul_(0.5)


@use
def gradients_are_changed_by_an_alias(loop: Loop) -> Any:
    for p in loop.params:
        p.grad.data.mul_(0.5)


@use
def gradients_are_replaced(loop: Loop) -> Any:
    for p in loop.params:
        p.grad = p.grad * 0.5


def gradients_are_clipped_together(loop: Loop) -> Any:
    cugrad.nn.utils.clip_grad_norm_(loop.params, 0.01)


@use
def gradients_are_clipped(loop: Loop) -> Any:
    clip_one_by_one(loop.params, 0.01)


@use
def states_are_read(loop: Loop) -> Any:
    return [state * 2 for state in loop.states]


@use
def states_are_changed(loop: Loop) -> Any:
    for state in loop.states:
        state.mul_(0.5)


@use
def the_learning_rate_is_made_on_the_device(loop: Loop) -> Any:
    loop.optimizer.param_groups[0]["lr"] = cugrad.ones((), device="simulated") * 0.01


@use
def another_pass_adds(loop: Loop) -> Any:
    loop.net(loop.x).square().mean().backward()


@use
def the_step_is_left_out(loop: Loop) -> Any:
    return "no step"


def trained(places: Any, use: Use, passes: int = 1) -> tuple[Any, Any]:
    """Weights, gradients and states behind steps of a loop that never waits, and the report; in the
    last ones something happens between backward and the step.
    """
    gc.collect()
    gc.freeze()  # what is there is not walked by the next collections
    loop, seen, report = Loop(), [], None

    def train() -> None:
        for step in range(STEPS):
            if use is views_are_read and step:
                loop.kept = [
                    each[:1] for each in (*[p.detach() for p in loop.params], *loop.states)
                ]
            loop.optimizer.zero_grad()
            for _ in range(passes):
                loop.net(loop.x).square().mean().backward()
            found = use(loop) if step > 1 else None
            loop.kept = []
            if found != "no step":
                seen.append(found)
                loop.optimizer.step()

    if places is None:
        train()
    else:
        options = {"window": "3KiB", "min_bytes": 512, **places}
        with memory.offload_states(loop.net, loop.optimizer, **options) as placed:
            train()
            report = placed.report()
    states = [loop.optimizer.state[p] for p in loop.params]
    return arrays_of([loop.params, [p.grad for p in loop.params], states, seen]), report


@functools.cache
def plainly(name: str) -> Any:
    """What comes of it without placements, in any order of streams: they have nothing to order."""
    return trained(None, USES[name])[0]


POLICIES = ("latest", "earliest", "random")
# Each use in each place, under one of the policies: any two of the three meet.
CASES = [(name, places, POLICIES[(i + k) % 3])
         for i, name in enumerate(USES) for k, places in enumerate(PLACES)]  # fmt: skip


@pytest.mark.parametrize(("name", "places", "policy"), CASES)
def test_what_is_done_between_backward_and_the_step_is_before_it(
    name: str, places: str, policy: str
) -> None:
    """The same, bit for bit, and no race, in whatever order streams run."""
    if name == "the_learning_rate_is_made_on_the_device" and "host" in places:
        places = "all stream"  # the host computes with it in double precision
    with simulated.configured(simulated.H200, policy=policy):
        there, _ = trained(PLACES[places], USES[name])
    assert same(plainly(name), there)


@pytest.mark.parametrize("passes", [1, 3])
def test_a_gradient_leaves_once_for_the_hosts_step(passes: int) -> None:
    """When the last pass has added to it, of as many as the step before had."""
    plain, _ = trained(None, nothing, passes=passes)
    there, report = trained(PLACES["states host"], nothing, passes=passes)
    assert same(plain, there)
    assert report["gradients"]["moved_out"] == STEPS * LAYERS * 16 * 16 * 4


def test_gradients_that_live_on_the_device_are_taken_together() -> None:
    """Their norm is that of all of them in one launch, as without; moments change nothing of it."""
    plain, _ = trained(None, gradients_are_clipped_together)
    there, report = trained(PLACES["states stream"], gradients_are_clipped_together)
    assert same(plain, there)
    assert report["gradients"]["moved_out"] == 0


def test_a_gradient_that_is_clipped_leaves_once() -> None:
    _, report = trained(PLACES["states host"], gradients_are_clipped)
    assert report["gradients"]["moved_out"] == STEPS * LAYERS * 16 * 16 * 4


def test_a_step_during_backward_leaves_gradients_where_they_are() -> None:
    places = {**PLACES["all stream"], "step": "during backward"}
    _, report = trained(places, nothing)
    assert report["gradients"]["moved_out"] == LAYERS * 16 * 16 * 4  # in the first step, behind it


@pytest.mark.parametrize("places", ["states host", "states stream"])
@pytest.mark.parametrize("use", [weights_are_read, gradients_are_changed])
def test_a_use_that_was_not_noticed_is_a_race(
    use: Use, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes a moment void is needed."""
    if use is gradients_are_changed and places == "states host":
        return  # they are sent anew
    monkeypatch.setattr(
        Moments, "of", lambda self, param: self.known[id(param)].event if id(param) in self.known
        else None,
    )  # fmt: skip
    with simulated.configured(simulated.H200, policy="latest"), pytest.raises(RaceError):
        trained(PLACES[places], use)
