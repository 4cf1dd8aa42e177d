"""Copies of a module on several devices, whose gradients arrive at the one module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module
from .scatter_gather import device_of

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """One copy of `network` for each device, of its class and with its attributes.

    Parameters of a copy are no leaves: `parameters()` of it is empty, and gradients go on to those
    of `network`, where they add up. Buffers are copied; where a device is theirs already, buffers
    and parameters are the very ones of `network`. With `detach` the copies have no history.
    """
    return [_replica(network, device_of(place), detach) for place in devices]


def _replica(network: Module, place: Any, detach: bool) -> Any:
    tensors: dict[int, Any] = {}

    def moved(t: Any) -> Any:
        if id(t) not in tensors:
            tensors[id(t)] = (t.detach() if detach or not t.requires_grad else t).to(place)
        return tensors[id(t)]

    modules = list(network.modules())
    copies: dict[int, Any] = {}
    for module in modules:
        copy = copies[id(module)] = module.__new__(type(module))
        own = dict(module.__dict__)
        own["_parameters"] = {k: None for k, p in module._parameters.items() if p is None}
        own["_buffers"] = {
            k: b if b is None else moved(b) for k, b in module._buffers.items()
        }  # fmt: skip
        own.update({k: moved(p) for k, p in module._parameters.items() if p is not None})
        copy.__dict__.update(own)
    for module in modules:
        children = {
            name: child if child is None else copies[id(child)]
            for name, child in module._modules.items()
        }
        copies[id(module)].__dict__["_modules"] = children
    return copies[id(network)]
