"""State dicts of models and optimizers on many ranks, by parameters' names: whole, or in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ... import distributed as dist
from ...autograd.mode import no_grad
from ...distributed.tensor.dtensor import DTensor, _part
from ...functions.creation.factories import empty, zeros_like
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
        keep_submodule_prefixes: PyTorch's for `submodules`, which are not here; True.
        strict: whether all names must be there, and no others.
        broadcast_from_rank0: whether `set_...` takes over what rank 0 has, whole; others may give
            an empty dict. Tensors travel one by one. With `full_state_dict`.
        flatten_optimizer_state_dict: whether states of optimizers are one dict, by keys such as
            "state.0.weight.exp_avg" and "param_groups.0.weight.lr".
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False

    def __post_init__(self) -> None:
        if not self.keep_submodule_prefixes:
            raise NotImplementedError(
                "StateDictOptions: got keep_submodule_prefixes=False, want True"
            )
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")


PLAIN = StateDictOptions()
Path = tuple[str, ...]  # the keys on the way to a tensor


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
    how, inner = options or PLAIN, _inner(model)
    if how.broadcast_from_rank0:
        own = inner.state_dict()

        def place(path: Path, whole: Tensor) -> Any:
            return _own(whole, own.get(path[0]))

        model_state_dict = _of_rank_0(model_state_dict, own.values(), place)
    return inner.load_state_dict(
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
    shown = _shown({"state": state, "param_groups": groups}, how, _is_first(inner))
    return _flattened(shown) if how.flatten_optimizer_state_dict and shown else shown


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
    how, params = options or PLAIN, dict(_inner(model).named_parameters())
    names = {p: n for n, p in params.items()}
    if how.broadcast_from_rank0:

        def place(path: Path, whole: Tensor) -> Any:
            return _own(whole, params.get(path[1]) if len(path) > 1 else None)

        optim_state_dict = _of_rank_0(optim_state_dict, params.values(), place)
    if how.flatten_optimizer_state_dict:
        optim_state_dict = _nested(optim_state_dict, names, optimizers)
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
    if optim_state_dict or (options or PLAIN).broadcast_from_rank0:
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


# ---------------------------------------------------------------------- what rank 0 has


@dataclass
class _Outline:
    """A tensor of rank 0, which comes by itself."""

    shape: tuple[int, ...]
    dtype: Any


def _of_rank_0(state: Any, own: Iterable[Any], place: Callable[[Path, Tensor], Any]) -> Any:
    """What rank 0 gives, on all ranks; `place` makes of each tensor what this rank keeps of it."""
    device = next((t.device for t in own), "cpu")
    is_first, tensors = dist.get_rank() == 0, list[Tensor]()

    def outlined(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: outlined(x) for key, x in value.items()}
        if not isinstance(value, Tensor):
            return value
        tensors.append(value)
        return _Outline(tuple(value.shape), value.dtype)

    def filled(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: filled(x, (*path, str(key))) for key, x in value.items()}
        if not isinstance(value, _Outline):
            return value
        if is_first:
            whole = tensors.pop(0).detach().to(device).contiguous()
        else:
            whole = empty(value.shape, dtype=value.dtype, device=device)
        dist.broadcast(whole, 0)
        return place(path, whole) if whole.ndim else whole.cpu()

    words = [outlined(state) if is_first else None]
    with no_grad():
        dist.broadcast_object_list(words, 0)
        return filled(words[0], ())


# ---------------------------------------------------------------------- one dict for all


def _flattened(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Each state, and each setting of each parameter, by a key of its own."""
    flat = {
        f"state.{name}.{key}": value
        for name, state in state_dict["state"].items() for key, value in state.items()
    }  # fmt: skip
    for group in state_dict["param_groups"]:
        for name in group["params"]:
            settings = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            flat |= {f"param_groups.{name}.{key}": value for key, value in settings.items()}
    return flat


def _nested(flat: dict[str, Any], names: dict[Any, str], optimizers: Any) -> dict[str, Any]:
    """What `_flattened` made flat, in the groups that optimizers have now."""
    state: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in flat.items():
        kind, _, rest = key.partition(".")
        name, _, last = rest.rpartition(".")
        (state if kind == "state" else settings).setdefault(name, {})[last] = value
    groups = [
        {**settings[members[0]], "params": members}
        for optimizer in _several(optimizers) for group in optimizer.param_groups
        if (members := [names[p] for p in group["params"]])
    ]  # fmt: skip
    return {"state": state, "param_groups": groups}


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
