"""State dicts of models and optimizers on many ranks, by parameters' names: whole, or in parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...autograd.mode import no_grad
from ...distributed.tensor.dtensor import DTensor, _part
from ...functions.creation.factories import zeros_like
from ...tensor import Tensor
from .distributed import DistributedDataParallel

__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict",
    "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip


@dataclass(frozen=True)
class StateDictOptions:
    """How state dicts are gathered and taken over.

    Args:
        full_state_dict: tensors in whole, on all ranks, instead of DTensors.
        cpu_offload: tensors on the CPU; with `full_state_dict`, on rank 0 alone.
        ignore_frozen_params: leaves out parameters that require no gradient.
        strict: whether all names must be there, and no others.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True


PLAIN = StateDictOptions()


def get_model_state_dict(model: Any, *, options: StateDictOptions | None = None) -> dict[str, Any]:
    """The state dict of a model, by the names that it has in one process."""
    how, inner = options or PLAIN, _inner(model)
    frozen = {n for n, p in inner.named_parameters() if not p.requires_grad}
    state = {
        name: value for name, value in inner.state_dict().items()
        if not (how.ignore_frozen_params and name in frozen)
    }  # fmt: skip
    return _shown(state, how, _is_first(inner))


def set_model_state_dict(
    model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Loads what `get_model_state_dict` gave, whole or in parts."""
    how = options or PLAIN
    return _inner(model).load_state_dict(
        model_state_dict, strict=how.strict and not how.ignore_frozen_params
    )


def get_optimizer_state_dict(
    model: Any, optimizers: Any, *, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The states of optimizers by the names of parameters; before a first step they are zeros."""
    how, inner = options or PLAIN, _inner(model)
    names = {p: n for n, p in inner.named_parameters()}
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _several(optimizers):
        _begin(optimizer)
        for group in optimizer.param_groups:
            groups.append({**group, "params": [names[p] for p in group["params"]]})
            for param in group["params"]:
                if param in optimizer.state:
                    state[names[param]] = dict(optimizer.state[param])
    return _shown({"state": state, "param_groups": groups}, how, _is_first(inner))


def set_optimizer_state_dict(
    model: Any,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Takes over what `get_optimizer_state_dict` gave, whole or in parts.

    KeyError for a parameter of which the state dict says nothing.
    """
    names = {p: n for n, p in _inner(model).named_parameters()}
    settings = {n: group for group in optim_state_dict["param_groups"] for n in group["params"]}
    for optimizer in _several(optimizers):
        local: dict[str, Any] = {"state": {}, "param_groups": []}
        number = 0
        for group in optimizer.param_groups:
            members = [names[p] for p in group["params"]]
            theirs = settings[members[0]] if members else group
            numbers = list(range(number, number + len(members)))
            local["param_groups"].append({**group, **theirs, "params": numbers})
            for i, (name, param) in enumerate(zip(members, group["params"]), number):
                if name in optim_state_dict["state"]:
                    state = optim_state_dict["state"][name]
                    local["state"][i] = {k: _own(v, param) for k, v in state.items()}
            number += len(members)
        optimizer.load_state_dict(local)


def get_state_dict(
    model: Any, optimizers: Any, *, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state dicts of a model and of its optimizers."""
    return (
        get_model_state_dict(model, options=options),
        get_optimizer_state_dict(model, optimizers, options=options),
    )


def set_state_dict(
    model: Any,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Takes over what `get_state_dict` gave."""
    if optim_state_dict:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


def _inner(model: Any) -> Any:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _several(optimizers: Any) -> Iterable[Any]:
    return [optimizers] if hasattr(optimizers, "param_groups") else list(optimizers)


def _is_first(model: Any) -> bool:
    for p in model.parameters():
        if isinstance(p, DTensor):
            return all(at == 0 for at in p.device_mesh.get_coordinate() or [0])
    return True


def _begin(optimizer: Any) -> None:
    """Has the states there, by a step that changes nothing; they are those of no step."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if optimizer.state or any(p.grad is not None for p in params):
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for p in params:
            p._grad = zeros_like(p.detach())
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = zeros_like(rate) if isinstance(rate, Tensor) else 0.0
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate
        for p in params:
            p._grad = None
    with no_grad():
        for state in optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"].zero_()


def _own(value: Any, param: Any) -> Any:
    """A state as the optimizer of a parameter has it: in the same parts."""
    if not isinstance(value, Tensor) or not isinstance(param, DTensor):
        return value.full_tensor() if isinstance(value, DTensor) else value
    if value.shape != param.shape:
        return value.full_tensor() if isinstance(value, DTensor) else value
    if isinstance(value, DTensor):
        return value.redistribute(param.device_mesh, param.placements)
    return _part(value, param.device_mesh, param.placements)


def _shown(value: Any, how: StateDictOptions, is_first: bool) -> Any:
    """The same as options ask for it; on other ranks than the first perhaps nothing."""
    shown = _mapped(value, how)
    return shown if is_first or not (how.full_state_dict and how.cpu_offload) else {}


def _mapped(value: Any, how: StateDictOptions) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(x, how) for key, x in value.items()}
    if isinstance(value, list):
        return [_mapped(x, how) for x in value]
    if not isinstance(value, Tensor):
        return value
    if how.full_state_dict and isinstance(value, DTensor):
        value = value.full_tensor()
    return value.cpu() if how.cpu_offload else value
