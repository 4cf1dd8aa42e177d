"""A training loop leaves nothing to the garbage collector: memory goes when its last user does."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cugrad as torch
from cugrad import nn, optim


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def ours_in_garbage() -> list[Any]:
    """What the collector finds of the library's objects, functions and arrays."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = [(type(o).__module__, getattr(o, "__module__", None) or "", o) for o in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return [
        o
        for kind, home, o in found
        if kind.partition(".")[0] in ("cugrad", "numpy", "cupy") or home.startswith("cugrad")
    ]


def test_a_cycle_would_be_found(collector_off: None) -> None:
    t = torch.ones(2)
    t.me = t
    del t
    assert len(ours_in_garbage()) == 1


def network() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(36, 10),
    )  # fmt: skip


def plain(model: Any, x: Any, y: Any) -> None:
    nn.functional.cross_entropy(model(x), y).backward()


def offloaded(model: Any, x: Any, y: Any) -> None:
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()


def twice(model: Any, x: Any, y: Any) -> None:
    loss = nn.functional.cross_entropy(model(x), y)
    (gradient,) = torch.autograd.grad(loss, model[0].weight, create_graph=True)
    gradient.square().sum().backward()


def hooked(model: Any, x: Any, y: Any) -> None:
    out = model(x)
    out.register_hook(lambda g: g * 2)
    out.retain_grad()
    out.grad_fn.register_hook(lambda inputs, outputs: None)
    nn.functional.cross_entropy(out, y).backward()


def changed_in_place(model: Any, x: Any, y: Any) -> None:
    out = model(x)
    out[0] = 0.0
    out.t().mul_(2.0)
    nn.functional.cross_entropy(out, y).backward()


def dropped(model: Any, x: Any, y: Any) -> None:
    model(x)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        return grad * 2


def custom(model: Any, x: Any, y: Any) -> None:
    nn.functional.cross_entropy(Double.apply(model(x)), y).backward()


@pytest.mark.parametrize(
    "use", [plain, offloaded, twice, hooked, changed_in_place, dropped, custom],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_steps_leave_no_cycles(use: Callable[..., None], collector_off: None, device: str) -> None:
    model = network().to(device)
    optimizer = optim.AdamW(model.parameters())
    x = torch.randn(8, 1, 8, 8, device=device)
    y = torch.randint(0, 10, (8,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        use(model, x, y)
        optimizer.step()

    for _ in range(3):  # what is made once: plans, compiled functions, optimizer state
        step()
    gc.collect()
    for _ in range(5):
        step()
    assert ours_in_garbage() == []
