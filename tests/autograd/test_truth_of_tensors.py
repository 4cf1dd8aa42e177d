"""Whether a tensor's elements are zero decides nothing: the library never asks for their truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad as torch
from cugrad import memory
from cugrad.autograd import forward_ad
from cugrad.autograd.graph import save_on_cpu, saved_tensors_hooks
from cugrad.utils.checkpoint import checkpoint


class Asked(BaseException):
    """What no fast path takes for a reason to go the slow one."""


@pytest.fixture(autouse=True)
def no_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(self: torch.Tensor) -> bool:
        raise Asked

    monkeypatch.setattr(torch.Tensor, "__bool__", asked)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "the same": lambda: saved_tensors_hooks(lambda x: x, lambda x: x),
    "a copy": lambda: saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x),
    "save_on_cpu": save_on_cpu,
    "offload": lambda: memory.offload(min_bytes=0),
    "disk": lambda: memory.save_on_disk(min_bytes=0),
    "recompute": memory.recompute,
}

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "square": lambda x: x.square(),
    "product": lambda x: x * x,
    "power": lambda x: x**3,
    "quotient": lambda x: x / (x + 2),
    "joined": lambda x: torch.cat([x, x.exp()]).prod(),
    "pieces": lambda x: sum(a * b for a, b in zip(torch.cat([x, x]).split(1), (x, x + 1))),
    "of arrays": lambda x: (x.view(1, 1) @ x.view(1, 1)).exp(),
    "softmax": lambda x: (torch.cat([x, x + 1]).softmax(0) * torch.cat([x, x])).sum(),
}


def second_derivative(function: Callable[[Any], Any], value: float, within: Any) -> float:
    x = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    with within:
        y = function(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return float(second)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("value", [0.0, 1.5])
def test_second_derivatives_by_a_saved_leaf(
    function: Callable[[Any], Any], value: float, context: Callable[[], Any]
) -> None:
    x = torch.tensor([value], dtype=torch.float64)
    want = float(torch.func.hessian(lambda v: function(v).sum())(x))
    assert second_derivative(function, value, context()) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_a_leaf_that_is_zero(
    function: Callable[[Any], Any], context: Callable[[], Any], reentrant: bool
) -> None:
    """As of a gate that begins closed."""
    gate = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    with context():
        y = checkpoint(lambda g: function(g) + g, gate, use_reentrant=reentrant)
    (grad,) = torch.autograd.grad(y.sum(), gate) if not reentrant else _accumulated(y, gate)
    (want,) = torch.autograd.grad((function(gate) + gate).sum(), gate)
    assert float(grad) == pytest.approx(float(want), abs=1e-12)


def _accumulated(y: torch.Tensor, leaf: torch.Tensor) -> tuple[Any]:
    y.sum().backward()
    return (leaf.grad,)


def test_an_operand_that_is_overwritten() -> None:
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    y = w.detach().mul_(w)  # which overwrites w: what the product saved is a copy in its place
    (first,) = torch.autograd.grad(y.sum(), w, create_graph=True)
    assert first.item() == 0.0
    y = torch.tensor([3.0], dtype=torch.float64).mul_(w)
    assert torch.autograd.grad(y.sum(), w)[0].item() == 3.0


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_a_tangent_that_is_a_leaf(value: float) -> None:
    """It is changed under `no_grad` with its tensor, and its gradient still goes to the leaf."""
    tangent = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.tensor([2.0], dtype=torch.float64), tangent)
        with torch.no_grad():
            x.mul_(3)
        result = forward_ad.unpack_dual(x * x).tangent
    assert result is not None
    (grad,) = torch.autograd.grad(result.sum(), tangent, allow_unused=True)
    assert grad is not None and grad.item() == 12.0


def test_what_a_hook_made_of_a_leaf_is_a_leaf() -> None:
    x = torch.zeros(1, requires_grad=True)
    with saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        y = x.square()
    saved = y.grad_fn._saved_self
    assert saved.is_leaf and saved.requires_grad and saved.grad_fn is None and saved is not x
    assert torch.autograd.grad((saved * 3).sum(), x)[0].item() == 3.0
    assert not saved.detach_().requires_grad and not (saved * 3).requires_grad
