"""The same parameters and gradients in cugrad and in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.optim.settings import shapes_for

__all__ = ["host", "set_gradients", "start", "worst"]


def start(lib: Any, name: str, dtype: str, device: str = "cpu") -> list[Any]:
    """Parameters for an optimizer."""
    rng = np.random.default_rng(1)
    params = []
    for shape in shapes_for(name):
        values = np.asarray(rng.standard_normal(shape) + 0.5j * rng.standard_normal(shape))
        values = values if dtype.startswith("complex") else values.real
        whole = dtype if hasattr(np, dtype) else "float32"
        param = lib.tensor(values.astype(whole), device=device).to(getattr(lib, dtype))
        params.append(param.requires_grad_())
    return params


def set_gradients(lib: Any, params: list[Any], step: int) -> None:
    """A gradient for every parameter; now and then one has none, as an unused layer has."""
    rng = np.random.default_rng(100 + step)
    for position, param in enumerate(params):
        shape = tuple(param.shape)
        values: Any = np.asarray(rng.standard_normal(shape)) * (1 + step % 3)
        if param.is_complex():
            values = values + 1j * rng.standard_normal(shape)
        value = lib.tensor(np.asarray(values), device=param.device).to(param.dtype)
        param.grad = None if position == 1 and step % 4 == 2 else value


def host(tensor: Any) -> Any:
    """The elements as NumPy has them; half precision as single."""
    tensor = tensor.detach().cpu()
    if tensor.dtype.itemsize < 4:
        tensor = tensor.float()
    return tensor.numpy()


def worst(got: Any, wanted: Any) -> float:
    """The largest difference between tensors, in proportion to those that are above 1."""
    a, b = host(got), host(wanted)
    return float(np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0))
