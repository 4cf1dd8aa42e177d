"""The simulated device computes what the host does, bit for bit: the order of sums is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import nn

pytestmark = pytest.mark.host_only

# By name: a layer, and the shape of its input. Convolutions take each of their ways; columns of one
# are more than are made at a time, and runs of another.
LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(40, 30), (50, 40)),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0), (10, 4, 32)),
    "layer norm": (lambda: nn.LayerNorm(64), (400, 64)),
    "batch norm": (lambda: nn.BatchNorm2d(16), (8, 16, 20, 20)),
    "lstm": (lambda: nn.LSTM(20, 32, 2, batch_first=True), (4, 7, 20)),
    "lstm, projected": (lambda: nn.LSTM(20, 32, proj_size=8), (7, 4, 20)),
    "gru": (lambda: nn.GRU(20, 32, bidirectional=True), (7, 4, 20)),
    "pointwise": (lambda: nn.Conv2d(16, 24, 1), (4, 16, 10, 10)),
    "by bands": (lambda: nn.Conv2d(12, 12, 3, padding=1, groups=12), (4, 12, 20, 20)),
    "by runs": (lambda: nn.Conv2d(12, 12, 3, padding=1, groups=12), (4, 12, 20, 120)),
    "by runs, 1d": (lambda: nn.Conv1d(64, 64, 5, padding=2, groups=64), (8, 64, 400)),
    "by lines": (lambda: nn.Conv2d(16, 32, 3, padding=1), (4, 16, 24, 24)),
    "by columns": (lambda: nn.Conv2d(16, 200, 3, padding=1, stride=2), (20, 16, 40, 40)),
    "transposed": (lambda: nn.ConvTranspose2d(12, 8, 3, stride=2), (4, 12, 10, 10)),
}


def results(name: str, device: str, dtype: Any) -> list[bytes]:
    """The output, and all gradients."""
    cugrad.manual_seed(0)
    make, shape = LAYERS[name]
    layer, x = make().to(device, dtype), cugrad.randn(shape).to(device, dtype).requires_grad_()
    y = layer(x)
    y = y[0] if type(y) is tuple else y
    y.square().mean().backward()
    every = [y.detach(), x.grad, *[param.grad for param in layer.parameters()]]
    return [value.cpu().numpy().tobytes() for value in every]


@pytest.mark.parametrize("dtype", [cugrad.float32, cugrad.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: Any) -> None:
    assert results(name, "simulated", dtype) == results(name, "cpu", dtype)
