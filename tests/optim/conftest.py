"""PyTorch, which optimizers are compared with."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, past its first optimizer, which sets an environment variable for itself."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
    return torch
