"""Gradients that are elsewhere are clipped and unscaled where they are, and nothing differs."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.autograd.mode import pop_observer, push_observer, state
from cugrad.backends import simulated
from cugrad.memory.states.placed import HOMES
from tests.memory.states.training import PLACES, arrays_of, clip_one_by_one, norms_one_by_one, same

WEIGHT, COUNT, STEPS = 64 * 64 * 4, 12, 4
WAYS = ["norm", "values", "unscaled", "unscaled, norm"]


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


def stack() -> Any:
    cugrad.manual_seed(0)
    layers = [cugrad.nn.Linear(64, 64, bias=False) for _ in range(COUNT)]
    return cugrad.nn.Sequential(*layers).to("simulated")


def trained(ways: str, places: Any) -> tuple[Any, Any]:
    """Losses, norms and weights, and what moved in the last steps, in weights a step."""
    net = stack()
    params = list(net.parameters())
    optimizer = cugrad.optim.Adam(params, lr=0.01)
    scaler = cugrad.amp.GradScaler("simulated", 3.0, enabled="unscaled" in ways)
    x = cugrad.ones(1, 64, device="simulated")
    seen: list[Any] = []
    reports = []
    with memory.offload_states(
        net, optimizer, window=4 * WEIGHT, min_bytes=512, **places
    ) as placed:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = net(x).square().mean() * 30
            scaler.scale(loss).backward()
            if scaler.is_enabled():
                scaler.unscale_(optimizer)
            if "norm" in ways:
                seen.append(clip_one_by_one(params, 0.5).item())
            if "values" in ways:
                cugrad.nn.utils.clip_grad_value_(params, 0.001)
            scaler.step(optimizer)
            scaler.update()
            seen.append(loss.item())
            reports.append(placed.report()["gradients"])
    last, first = reports[-1], reports[-2]
    moved = [(last[way] - first[way]) / WEIGHT for way in ("moved_out", "moved_back")]
    assert last["most_on_device"] <= 5 * WEIGHT or not places
    return [seen, arrays_of(params)], moved


@cache
def plainly(ways: str) -> Any:
    return trained(ways, {})[0]


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("place", ["all on the host", "all streamed"])
def test_clipping_moves_nothing(place: str, ways: str) -> None:
    """A gradient leaves once, and comes once, if the step is on the device. Only a norm of what is
    to be unscaled is not known before it leaves.
    """
    plain = plainly(ways)
    with simulated.configured(policy="random", seed=3):
        result, moved = trained(ways, PLACES[place])
    assert same(result, plain)
    later = ways == "unscaled, norm"
    assert moved[0] == COUNT
    assert moved[1] <= COUNT * ((place == "all streamed") + later) + 4  # what came ahead


@pytest.mark.parametrize("place", ["all on the host", "all streamed"])
def test_whoever_looks_sees_what_was_clipped(place: str) -> None:
    def looked(places: Any) -> list[Any]:
        net, seen = stack(), []
        params = list(net.parameters())
        optimizer = cugrad.optim.SGD(params, lr=0.1)
        x = cugrad.ones(1, 64, device="simulated")
        with memory.offload_states(net, optimizer, window="64KiB", min_bytes=512, **places):
            for step in range(3):
                net(x).square().mean().backward()
                alias, version = params[0].grad.detach(), params[0].grad._version
                cugrad.nn.utils.clip_grad_norm_(params, 1e-3)
                cugrad.nn.utils.clip_grad_value_(params, 1e-5)
                assert params[0].grad._version > version
                seen.append([arrays_of(params[k].grad) for k in (0, 5, 11)])
                seen.append([arrays_of(alias), arrays_of(cugrad.nn.utils.get_total_norm(
                    [p.grad.detach() for p in params], step + 1.0))])  # fmt: skip
                net(x).square().mean().backward()  # is added to what was clipped
                params[3].grad[0] = 0.5
                cugrad.nn.utils.clip_grad_norm_(params[:6], 1e-3, float("inf"))
                with cugrad.no_grad():
                    params[2].grad.view(-1)[:5] = 1.0
                seen.append([float(cugrad.nn.utils.get_total_norm([p.grad for p in params]))])
                optimizer.step()
                if step == 1:
                    optimizer.zero_grad(set_to_none=False)
        return [seen, arrays_of(params)]

    with norms_one_by_one():
        assert same(looked(PLACES[place]), looked({}))


@pytest.mark.parametrize("looks", [lambda grad: grad.add_(1.0), lambda grad: grad * 2.0])
def test_what_waits_for_a_gradient_is_no_op_of_the_program(looks: Any) -> None:
    """It is done where the gradient comes, be that within an op that observers see begin."""
    seen: list[Any] = []

    class Noted:
        def op_begin(self, name: str, seq: int, args: Any) -> None:
            before = state.call
            assert args[0]._array is not None  # as who records a program looks at it
            seen.append((name, state.call is before))

        def op_end(self, name: str, seq: int, result: Any) -> None:
            seen.append((name, "ended"))

    def looked(places: Any, *observers: Any) -> Any:
        net = stack()
        optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
        with memory.offload_states(net, optimizer, window=WEIGHT, min_bytes=512, **places):
            net(cugrad.ones(1, 64, device="simulated")).sum().backward()
            cugrad.nn.utils.clip_grad_value_(net.parameters(), 0.001)
            for each in observers:
                push_observer(each)
            try:
                return looks(net[COUNT - 1].weight.grad)
            finally:
                for each in observers:
                    pop_observer(each)

    noted: Any = Noted()
    expected, result = looked({}), looked(PLACES["all on the host"], noted)
    name = seen[0][0]
    assert seen == [(name, True), (name, "ended")]
    assert same(arrays_of([result]), arrays_of([expected]))


def test_what_is_changed_while_it_leaves_is_changed_once() -> None:
    """A gradient that someone holds is still here when it is clipped: its memory is no longer what
    has been sent, and may not come back in its place while the copy out is under way.
    """
    x, found = cugrad.ones(4, 8, device="simulated"), []
    for placed in (False, True):
        cugrad.manual_seed(0)
        net = cugrad.nn.Sequential(*[cugrad.nn.Linear(8, 8) for _ in range(3)]).to("simulated")
        optimizer, held = cugrad.optim.SGD(net.parameters(), lr=0.1), []
        with ExitStack() as contexts:
            if placed:
                contexts.enter_context(
                    memory.offload_states(net, optimizer, gradients="host", min_bytes=0)
                )
            hold = lambda p, held=held: held.append(p.grad._array)
            for p in net.parameters():
                p.register_post_accumulate_grad_hook(hold)
            net(x).square().sum().backward()
            cugrad.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            held.clear()
            homes = [HOMES[id(p.grad)] for p in net.parameters() if id(p.grad) in HOMES]
            assert len(homes) == 6 * placed and all(home.vacate() for home in homes)
            found.append([p.grad.tolist() for p in net.parameters()])
    assert found[0] == found[1]
