"""save_on_cpu on the simulated device: the same gradients under every schedule, and no race."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd.graph import save_on_cpu
from cugrad.backends import simulated


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    simulated.reset()


def on_device(period: int) -> Any:
    values = np.arange(36.0).reshape(6, 6) % period / period - 0.4
    return cugrad.tensor(values, device="simulated", requires_grad=True)


def training(context: Any, steps: int = 3) -> list[bytes]:
    """Gradients of a graph with views, transposed and sliced tensors, each step twice backward."""
    found = []
    for _ in range(steps):
        x, w = on_device(7), on_device(5)
        inside: AbstractContextManager[Any] = context()
        with inside:
            h = (x @ w).tanh()
            y = ((h * h.t().contiguous().t()).exp() * h)[:, 1:5].sum()
        y.backward(retain_graph=True)
        y.backward()
        found += [t.grad.cpu().numpy().tobytes() for t in (x, w)]
    return found


@pytest.mark.parametrize("policy", simulated.POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_gradients_are_bitwise_those_without(policy: str, seed: int) -> None:
    plain = training(nullcontext)
    with simulated.configured(policy=policy, seed=seed):
        assert training(lambda: save_on_cpu(pin_memory=True)) == plain
