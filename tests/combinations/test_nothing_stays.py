"""Who trains in whatever context, and lets go of everything, has the device's memory back."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.budgeting.context import _learned
from cugrad.memory.budgeting.planning import search
from cugrad.memory.offloading.engine import engine_of
from cugrad.utils.checkpoint import checkpoint
from tests.support.programs.contexts import CONTEXTS, budget

pytestmark = pytest.mark.host_only

DEVICE: Any = backends.get("simulated")


class Mine(cugrad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * (2 + 0 * x)


def loss_of(net: Any, x: Any) -> Any:
    """A forward with most that a node may hold: views, in place, a Function, a checkpoint, vmap."""
    h = net[0](x).tanh()
    h = checkpoint(net[1], h, use_reentrant=False).sigmoid()
    h = cugrad.vmap(lambda row: (row.sin() * row).exp())(h) * h[:, :1]
    h = Mine.apply(net[2](h).mul_(0.5).add_(1))
    return cugrad.nn.functional.dropout(h.view(-1), 0.1).square().mean()


class Fails(Exception):
    pass


def _fails(grad: Any) -> None:
    raise Fails


# How a step ends, behind its forward.
def backward(loss: Any, params: Any) -> None:
    loss.backward()


def twice(loss: Any, params: Any) -> None:
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)


def double(loss: Any, params: Any) -> None:
    grads = cugrad.autograd.grad(loss, params, create_graph=True)
    sum([g.square().sum() for g in grads]).backward(retain_graph=True)


def no_backward(loss: Any, params: Any) -> None: ...


def error_in_backward(loss: Any, params: Any) -> None:
    params[1].register_hook(_fails)
    loss.backward()


def error_in_forward(loss: Any, params: Any) -> None:
    raise Fails


ENDINGS: dict[str, Callable[[Any, Any], None]] = {
    f.__name__: f
    for f in (backward, twice, double, no_backward, error_in_backward, error_in_forward)
}
THOSE_THAT_STEP = ("backward", "no_backward", "error_in_backward", "backward", "error_in_forward")
SAVING: dict[str, Callable[[], Any]] = {
    name: enter for name, enter in CONTEXTS.items()
    if name not in ("numpy", "fused", "function mode") and not name.startswith("budget")
}  # fmt: skip
SAVING |= {
    f"budget of {limit}, {' '.join(places) or 'all'}": lambda limit=limit, places=places: budget(
        limit, *places
    )
    for limit in ("100KB", "200KB")
    for places in ((), ("offload",), ("recompute",), ("disk",))
}
STATES: dict[str, Callable[[Any, Any], Any]] = {
    f"{name}, {left}": lambda net, optimizer, options=options, back=back: memory.offload_states(
        net, optimizer, window="8KB", min_bytes=0, bring_back=back, **options
    )
    for back, left in ((True, "brought back"), (False, "left there"))
    for name, options in {
        "on the host": {"weights": "host", "gradients": "host", "states": "host"},
        "streamed": {"weights": "host", "gradients": "host", "states": "stream"},
        "on a disk": {"weights": "disk", "states": "disk"},
        "during backward": {"gradients": "host", "states": "stream", "step": "during backward"},
        "masters": {"weights": "host", "states": "stream", "masters": "float32"},
    }.items()
}  # fmt: skip
STATES["budget of a model"] = lambda net, optimizer: memory.budget(
    "150KB", model=net, optimizer=optimizer
)


def drawn(names: Iterable[str], endings: Iterable[str], count: int) -> list[Any]:
    """Each name with so many of the endings, and a policy of the device for each."""
    ends, policies = itertools.cycle(endings), itertools.cycle(("latest", "earliest", "random"))
    return [(name, next(ends), next(policies)) for name in names for _ in range(count)]


@pytest.fixture(autouse=True)
def all_is_there_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of the device, and of page-locked memory, as soon as the collector has been there once."""
    monkeypatch.setattr(search, "WORK", search.WORK // 50)
    gc.collect()
    engine_of(DEVICE, 0).drain()
    before, host = DEVICE.memory_allocated(), engine_of(DEVICE, 0).out.slab.used_bytes
    yield
    gc.collect()
    assert DEVICE.memory_allocated() == before
    assert engine_of(DEVICE, 0).out.slab.used_bytes == host
    simulated.reset()
    _learned.clear()


def trained(enter: Callable[[Any, Any], Any], ending: str, whole: bool, dtype: Any = None) -> None:
    """Three steps within contexts: around each, or around the loop."""
    net = cugrad.nn.Sequential(*[cugrad.nn.Linear(40, 40) for _ in range(3)])
    net.to("simulated", dtype)
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(64, 40, device="simulated", dtype=dtype)
    with ExitStack() as loop, warnings.catch_warnings(), suppress(memory.BudgetError):
        warnings.simplefilter("ignore")
        if whole:
            loop.enter_context(enter(net, optimizer))
        for _ in range(3):
            optimizer.zero_grad()
            with ExitStack() as step, suppress(Fails):
                if not whole:
                    step.enter_context(enter(net, optimizer))
                ENDINGS[ending](loss_of(net, x), list(net.parameters()))
            optimizer.step()


@pytest.mark.parametrize("name, ending, policy", drawn(SAVING, ENDINGS, 2))
def test_what_is_saved(name: str, ending: str, policy: str) -> None:
    with simulated.configured(policy=policy, seed=0), cugrad.device("simulated"):
        trained(lambda net, optimizer: SAVING[name](), ending, False)


@pytest.mark.parametrize("name, ending, policy", drawn(STATES, THOSE_THAT_STEP, 2))
def test_training_states(name: str, ending: str, policy: str) -> None:
    dtype = cugrad.bfloat16 if name.startswith("masters") else cugrad.float32
    with simulated.configured(policy=policy, seed=0):
        trained(STATES[name], ending, True, dtype)
