"""What a checkpointed function uses, and is not given, may require gradients only later.

An op then saves other operands when it runs again: each slot gets the operand that it stood for.
PyTorch takes them by their place: `w * x` gets the gradient of `x * x`, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad as torch
from cugrad import nn
from cugrad.utils.checkpoint import CheckpointError, checkpoint

F = nn.functional
USES: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda x, w: x * w,
    "product, second": lambda x, w: w * x,
    "quotient": lambda x, w: (w / x) / w,
    "chain": lambda x, w: ((x * w).sin() * w) * x.exp(),
    "two uses": lambda x, w: (w * x) * (w * x),
    "matmul": lambda x, w: w @ x @ w,
    "where": lambda x, w: torch.where(w > 0, w * x, x * x),
    "lerp": lambda x, w: torch.lerp(w, x, w),
    "cat": lambda x, w: torch.cat([w, x]) * torch.cat([x, w]),
    "layer_norm": lambda x, w: F.layer_norm(w, (3,), x[0], w[0]),
    "batch_norm": lambda x, w: F.batch_norm(w, x[0].detach(), x[1].exp().detach(), x[0], w[0]),
    "attention": lambda x, w: F.scaled_dot_product_attention(w[None], x[None], w[None]),
    "conv": lambda x, w: F.conv1d(w[None], x[:, :, None], w[0]),
    "embedding": lambda x, w: F.embedding(torch.tensor([0, 2]), x) * w[:2],
    "norm": lambda x, w: (w - x).norm() * w + F.cosine_similarity(x, x + w),
}  # fmt: skip


def leaves() -> list[Any]:
    torch.manual_seed(0)
    return [torch.rand(3, 3, dtype=torch.float64) + 0.5 for _ in range(2)]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("name", USES)
def test_it_may_require_gradients_later(name: str, early_stop: bool, nested: bool) -> None:
    use, gradients = USES[name], []
    for checkpointed in (False, True):
        x, w = leaves()
        x.requires_grad_()

        def once(x: Any, w: Any = w) -> Any:
            return use(x, w)

        def twice(x: Any, once: Any = once) -> Any:
            return checkpoint(once, x, use_reentrant=False).sin()

        if checkpointed:
            y = checkpoint(twice if nested else once, x, use_reentrant=False, early_stop=early_stop)
        else:
            y = once(x).sin() if nested else once(x)
        w.requires_grad_()
        gradients.append(torch.autograd.grad(y.square().sum(), (x, w), allow_unused=True))
    (wanted, none), (x_grad, w_grad) = gradients
    assert none is None and w_grad is None
    torch.testing.assert_close(x_grad, wanted, rtol=0, atol=0)


def later(use: Callable[[Any, Any], Any]) -> None:
    x, w = leaves()
    x.requires_grad_()
    y = checkpoint(lambda x: use(x, w), x, use_reentrant=False)
    w.requires_grad_()
    y.sum().backward()


@pytest.mark.parametrize(
    "use", [lambda x, w: x * w.sin(), lambda x, w: w.exp() * x, lambda x, w: (x * w.sin()).exp()]
)
def test_what_it_makes_of_that_alone_is_an_error(use: Callable[[Any, Any], Any]) -> None:
    """An op that was not recorded saves what took no slot: PyTorch's gradients are wrong then."""
    with pytest.raises(CheckpointError, match="different metadata(.|\n)*saved by .* then by"):
        later(use)


def test_operands_that_are_saved_no_more_are_an_error() -> None:
    x, w = leaves()
    x.requires_grad_(), w.requires_grad_()
    y = checkpoint(lambda x: (x * w).exp() * w, x, use_reentrant=False)
    w.requires_grad_(False)
    with pytest.raises(CheckpointError, match="different number|do other operands require grad"):
        y.sum().backward()
