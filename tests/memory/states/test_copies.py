"""Copies of models and tensors that are elsewhere, and what their classes make."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory, nn
from tests.memory.states.training import arrays_of, deep, same

pytestmark = pytest.mark.usefixtures("nothing_stays_placed")

DEVICE: Any = backends.get("simulated")
WIDTH = 128
LARGEST = 4 * WIDTH * WIDTH


def normed(width: int, depth: int) -> Any:
    """A model whose layers have directions and lengths."""
    net = deep(width, depth)
    for layer in [each for each in net.modules() if type(each) is nn.Linear]:
        nn.utils.parametrizations.weight_norm(layer)
    return net


class Own(nn.Parameter):
    """A parameter of a class that copies it by a call of its own."""

    def __deepcopy__(self, memo: Any) -> Any:
        memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]


def with_own(width: int, depth: int) -> Any:
    net = deep(width, depth)
    for layer in [each for each in net.modules() if type(each) is nn.Linear]:
        layer.weight = Own(layer.weight.detach())
    return net


def elsewhere(net: Any, optimizer: Any) -> AbstractContextManager[Any]:
    return memory.offload_states(
        net, optimizer, weights="host", gradients="host", states="stream", window=LARGEST,
        min_bytes=1024,
    )  # fmt: skip


def in_a_budget(net: Any, optimizer: Any) -> AbstractContextManager[Any]:
    return memory.budget(1 << 21, model=net, optimizer=optimizer)


def in_a_recording(net: Any, optimizer: Any) -> AbstractContextManager[Any]:
    context: Any = memory.recompute()
    placed = elsewhere(net, optimizer)

    class Both:
        def __enter__(self) -> None:
            placed.__enter__()
            context.__enter__()

        def __exit__(self, *exc: Any) -> None:
            context.__exit__(*exc)
            placed.__exit__(*exc)

    return Both()


AVERAGED: list[Callable[[Any], Any]] = [copy.deepcopy, cugrad.optim.swa_utils.AveragedModel]


@pytest.mark.parametrize("copied", AVERAGED)
@pytest.mark.parametrize("within", [elsewhere, in_a_budget, in_a_recording])
@pytest.mark.parametrize("make", [deep, normed])
def test_a_copy_of_a_model_brings_a_few_tensors_at_a_time(
    make: Any, within: Any, copied: Any
) -> None:
    """However many there are: beside the copy the device has those of the window."""
    cugrad.manual_seed(0)
    net = make(WIDTH, 12).to("simulated")
    plain = arrays_of(list(net.parameters()))
    with within(net, cugrad.optim.Adam(net.parameters())):
        DEVICE.synchronize()
        before = DEVICE.memory_allocated()
        DEVICE.reset_peak_memory_stats()
        twin = copied(net)
        most = DEVICE.max_memory_allocated()
    there = sum([-(-p.nbytes // 512) * 512 for p in twin.parameters()])
    assert most - before - there <= 3 * LARGEST
    assert same(arrays_of(list(twin.parameters())), plain)


@pytest.mark.parametrize("make", [deep, normed, with_own])
def test_the_class_of_what_is_elsewhere_makes_ordinary_tensors(make: Any) -> None:
    """Called by who replaces a parameter, or within a copy that its own class makes."""
    net = make(WIDTH, 2).to("simulated")
    kinds = [type(param) for param in net.parameters()]
    with elsewhere(net, cugrad.optim.Adam(net.parameters())):
        twin = copy.deepcopy(net)
        for kind, param, other in zip(kinds, net.parameters(), twin.parameters()):
            for one in (type(param), param.__class__):
                again: Any = one(other.detach(), requires_grad=False)
                assert type(again) is kind and same(arrays_of(again), arrays_of(param))
                assert not again.requires_grad and again.data_ptr() == other.data_ptr()
        assert [type(param) for param in twin.parameters()] == kinds
