"""What the tests of the profiler share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cugrad
from cugrad import backends, memory, nn


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.function_events]


def leaf(*shape: int, device: str = "cpu") -> cugrad.Tensor:
    return cugrad.ones(*shape, device=device, requires_grad=True)


def trained(device: str = "simulated", waits: bool = False) -> Callable[[], None]:
    """A step of training with offload; what it saved has left before backward where it waits."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
    net = net.to(device)
    x = cugrad.randn(128, 64, device=device)
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        with memory.offload(min_bytes=1, keep_last=0, device_type=device):
            loss = net(x).sum()
        if waits:
            backends.get(device).synchronize()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
