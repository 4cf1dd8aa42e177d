"""Every function, checkpointed in every way, under every kind of pass: bit for bit as without."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get, simulated
from cugrad.memory.offloading.engine import engine_of
from tests.memory.recompute.checkpoint_cases import (
    FUNCTIONS,
    OURS,
    PASSES,
    WAYS,
    Direct,
    kit,
    leaves,
    result,
)

DRAWS = int(os.environ.get("CUGRAD_CHECKPOINT_DRAWS", "6"))  # for each function
ALL = [(way, how) for way in {**WAYS, **OURS} for how in PASSES]


def bits(found: list[Any]) -> list[Any]:
    return [None if a is None else a.tobytes() for a in found]


def mutates(function: str, way: str) -> bool:
    """A result that is kept may not be changed in place, and is an error."""
    return function == "in_place" and way == "selective"


def check(function: str, way: str, how: str, device: str, needed: Any = (True, True)) -> None:
    if mutates(function, way):
        return
    wanted = bits(result(Direct, cugrad, function, way, how, device, needed))
    found = bits(result(kit(cugrad), cugrad, function, way, how, device, needed))
    assert found == wanted, f"{function}, {way}, {how}, {needed}"


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("how", PASSES)
def test_every_way_is_bitwise_the_plain_one(function: str, how: str) -> None:
    """Each way with each function, and with each kind of pass: a third of all three together."""
    turn = list(FUNCTIONS).index(function) + list(PASSES).index(how)
    for number, way in enumerate(WAYS):
        if (number + turn) % 3 == 0:
            check(function, way, how, "cpu")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_on_the_simulated_device(function: str) -> None:
    """Among them offload inside of checkpoints and checkpoints inside of offload."""
    draw = random.Random(function)
    for _ in range(DRAWS):
        policy, seed = draw.choice(simulated.POLICIES), draw.randrange(1000)
        way, how = draw.choice(ALL)
        engine_of(get("simulated"), 0)._plans.clear()  # nothing was learned from other tests
        with simulated.configured(policy=policy, seed=seed):
            check(function, way, how, "simulated")
    simulated.reset()


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_where_one_input_needs_no_gradient(function: str, needed: Any) -> None:
    if function == "grad_within" and not needed[0]:
        return  # it asks for the gradient of x
    how = "backward"
    for way in WAYS:
        check(function, way, how, "cpu", needed)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_ours_alone(function: str) -> None:
    draw = random.Random(function)
    for way in OURS:
        check(function, way, draw.choice(list(PASSES)), "cpu")


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f != "random_numbers"])
def test_as_pytorch_does(function: str) -> None:
    torch = pytest.importorskip("torch")
    hows = list(PASSES)
    for k, way in enumerate(WAYS, list(FUNCTIONS).index(function)):
        how = hows[k % len(hows)]
        if way == "debug":  # PyTorch's logs work once, and not with pytest's
            continue
        if (function, how) == ("grad_within", "as_a_group"):
            continue  # PyTorch takes the pass within for one of the group
        wanted = result(kit(torch), torch, function, way, how)
        found = result(kit(cugrad), cugrad, function, way, how)
        for a, b in zip(found, wanted, strict=True):
            assert (a is None) == (b is None), (function, way, how)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9 * abs(b).max())


@pytest.mark.parametrize("how", ["backward", "twice_through", "with_hooks", "elsewhere"])
@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f != "grad_within"])
def test_reentrant_checkpoints(function: str, how: str, lib: Any) -> None:
    """The same but for the order in which gradients add up; grad_within would refuse."""
    if (function, how) == ("passed_through", "with_hooks"):
        return  # the input, come back as an output, is another tensor, with a gradient of its own
    found = []
    for use in (False, True):
        lib.manual_seed(5)
        x, w = leaves(lib)
        given = (FUNCTIONS[function], lib, x * 1, w)

        def run(given: Any = given, use: bool = use) -> Any:
            if not use:
                return given[0](*given[1:])
            return kit(lib).checkpoint(*given, use_reentrant=True)

        results = PASSES[how](lib, run, x, w)
        found.append([None if t is None else t.detach().cpu().tolist() for t in results])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_one_output_of_the_first_region_only_frees_what_is_not_wanted() -> None:
    """A second pass runs the function no further than what is still alive."""
    calls = []

    def f(x: Any) -> Any:
        calls.append("a")
        a = x.exp().sin()
        calls.append("b")
        return a, (x * x).cos().exp().sin()

    x = cugrad.ones(3, requires_grad=True)
    a, b = cugrad.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    b.sum().backward()
    del b
    calls.clear()
    a.sum().backward()
    assert calls == ["a"]
