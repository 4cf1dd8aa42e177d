"""Gradients with which the steps of a loop in a budget begin: what they need is known in time."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.utils.checkpoint import checkpoint
from tests.memory.states.training import deep

pytestmark = pytest.mark.usefixtures("nothing_stays_placed", "quick_plans")

Zeroing = Callable[[Any, Any], None]


def drops(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad()


def by_optimizer(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad(set_to_none=False)


def by_model(net: Any, optimizer: Any) -> None:
    net.zero_grad(set_to_none=False)


def by_layer(net: Any, optimizer: Any) -> None:
    for layer in net:
        layer.zero_grad(set_to_none=False)


def one_by_one(net: Any, optimizer: Any) -> None:
    for param in net.parameters():
        if param.grad is not None:
            param.grad.zero_()


def at_once(net: Any, optimizer: Any) -> None:
    grads = [param.grad for param in net.parameters() if param.grad is not None]
    if grads:
        cugrad._foreach_zero_(grads)


def with_new_ones(net: Any, optimizer: Any) -> None:
    for param in net.parameters():
        param.grad = cugrad.zeros_like(param)


def nothing(output: Any) -> None:
    """Is computed behind a step."""


def accuracy(output: Any) -> None:
    (output > 0).float().mean().item()


def start() -> tuple[Any, Any, Any]:
    cugrad.manual_seed(0)
    net = deep(64, 3).to("simulated")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.01)
    x = cugrad.rand(8, 64, device="simulated")
    gc.collect()
    return net, optimizer, x


def train(
    limit: int, zeroing: Zeroing, behind: Callable[[Any], None] = nothing, has_grads: bool = False,
    run: Callable[[Any, Any], Any] = lambda net, x: net(x),
) -> Any:  # fmt: skip
    net, optimizer, x = start()
    if has_grads:
        with_new_ones(net, optimizer)
    with memory.budget(limit, model=net, optimizer=optimizer) as plan:
        for _ in range(6):
            zeroing(net, optimizer)
            output = run(net, x)
            output.square().mean().backward()
            output = output.detach()
            optimizer.step()
            behind(output)
    return plan


def named(zeroing: Zeroing, *args: Any) -> tuple[list[int], Any]:
    """The limits that errors name one after the other, and the budget that is enough."""
    limits = [1]
    while len(limits) < 6:
        try:
            with warnings.catch_warnings():  # of what new ones took
                warnings.simplefilter("ignore")
                return limits, train(limits[-1], zeroing, *args)
        except memory.BudgetError as error:
            least = re.search(r"(?:needs at least|least took|few:) ([\d.]+) KiB", str(error))
            assert least is not None
            limits.append(int(float(least[1]) * 1024))
            error.__traceback__ = None
    raise AssertionError(limits)


@pytest.mark.parametrize("zeroing", [by_model, by_layer, with_new_ones])
def test_what_they_need_is_named_before_they_are_there(zeroing: Zeroing) -> None:
    """By whatever the loop has said it, as by the optimizer's own method."""
    limits, plan = named(zeroing)
    assert len(limits) == 4 and plan.peak() <= limits[-1]  # on entering, in an op, behind the pass
    if zeroing is not with_new_ones:
        assert limits == named(by_optimizer)[0]


@pytest.mark.parametrize("zeroing", [by_optimizer, by_model, one_by_one])
def test_what_is_named_for_those_that_are_there_is_no_more(zeroing: Zeroing) -> None:
    """Than for those that will be: the pass that is measured has them already."""
    limits, plan = named(zeroing, nothing, True)
    assert len(limits) == 4 and plan.peak() <= limits[-1]
    assert limits[-1] <= named(by_optimizer)[0][-1]


@pytest.mark.parametrize("zeroing", [by_model, one_by_one, at_once, with_new_ones])
@pytest.mark.parametrize("is_reentrant", [False, True])
def test_they_are_seen_as_a_pass_begins(zeroing: Zeroing, is_reentrant: bool) -> None:
    """Whoever has filled them; of a checkpoint that shows no op of its own with backward."""

    def recomputed(net: Any, x: Any) -> Any:
        return checkpoint(net, x.detach().requires_grad_(), use_reentrant=True)

    run = recomputed if is_reentrant else lambda net, x: net(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = train(120_000, zeroing, run=run)
    assert plan._states._seen.zeroed and plan.peak() <= 120_000


def test_what_is_computed_behind_a_step_begins_no_pass() -> None:
    """The gradients that are there then are about to go: no room is made for them."""
    limits, plan = named(drops, accuracy)
    assert limits == named(drops)[0] and not plan._states._seen.zeroed
    places = [str(train(100 << 10, drops, behind)._states.chosen) for behind in (nothing, accuracy)]
    assert places[0] == places[1]
