"""Optimizer: parameter groups, their settings and per-parameter state."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from ..autograd.mode import enable_grad, no_grad
from ..autograd.ranges import ranged
from ..tensor import Tensor

Params = Iterable[Any]  # of tensors, of (name, tensor), or of group dictionaries


def check_range(name: str, value: float, *, below: float = math.inf) -> None:
    """ValueError, in PyTorch's words, unless 0 <= `value` < `below`; TypeError for a Tensor."""
    if isinstance(value, Tensor):
        raise TypeError(f"{name}: got a Tensor, want a Python number, such as tensor.item()")
    if not 0.0 <= value < below:
        raise ValueError(f"Invalid {name}: {value}")


def scaled(xp: Any, array: Any, factor: float) -> Any:
    """A new array, `factor` times `array`, 0-d included (where NumPy would give a scalar)."""
    return xp.multiply(array, factor, out=xp.empty_like(array))


class Optimizer:
    """Base class: holds `param_groups`, `defaults` and `state`; subclasses write `_update`.

    `params` is an iterable of tensors, of (name, tensor) pairs, or of dictionaries that give a
    group's "params" and the settings in which it differs from `defaults`.

    Raises:
        TypeError, ValueError: when `params` is empty, repeats a tensor or holds anything else.
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__name__}"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimise more parameters, with settings of their own, from now on."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params, names = _read_params(param_group["params"])
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    "optimizer can only optimize Tensors, but one of the params is "
                    + type(param).__name__
                )
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error",
                stacklevel=3,
            )
        taken = set(chain.from_iterable(group["params"] for group in self.param_groups))
        if not taken.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        if any(("param_names" in group) != (names is not None) for group in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'without' if names is None else 'with'} names to the optimizer"
            )
        param_group["params"] = params
        if names is not None:
            param_group["param_names"] = names
        for name, default in self.defaults.items():
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros when `set_to_none` is False."""
        name = type(self).__name__
        with ranged(f"Optimizer.zero_grad#{name}.zero_grad", "optimizer"):
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is None:
                        continue
                    if set_to_none:
                        param.grad = None
                        continue
                    if param.grad.grad_fn is not None:
                        param.grad.detach_()
                    else:
                        param.grad.requires_grad_(False)
                    param.grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; returns what `closure` returned.

        `closure` evaluates the model again, with gradients, before the update.
        """
        loss, name = None, type(self).__name__
        with ranged(f"Optimizer.step#{name}.step", "optimizer"):
            if closure is not None:
                with enable_grad():
                    loss = closure()
            with no_grad():
                for group in self.param_groups:
                    self._update([p for p in group["params"] if p.grad is not None], group)
        return loss

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Change `params`, which all have gradients, in place; the memory goes to `state`."""
        raise NotImplementedError(f"{type(self).__name__} has no _update")

    def state_dict(self) -> dict[str, Any]:
        """`state` and `param_groups` with every parameter replaced by its number.

        State tensors are shared, not copied.
        """
        number: dict[Tensor, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                number.setdefault(param, len(number))
            packed = {key: value for key, value in group.items() if key != "params"}
            groups.append({**packed, "params": [number[param] for param in group["params"]]})
        state = {number.get(key, key): value for key, value in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state and settings that `state_dict` gave, in the order of parameters.

        State tensors are copied to each parameter's device and dtype.

        Raises:
            ValueError: when the groups differ in number or size.
        """
        saved = deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        params: dict[int, Tensor] = {}
        for group, new in zip(self.param_groups, saved):
            params.update(zip(new["params"], group["params"]))
            new["params"] = group["params"]
            if "param_names" in group:
                new.setdefault("param_names", group["param_names"])
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _adopt(params[key], value)
            else:
                state[key] = value
        self.state = state
        self.param_groups = saved

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for position, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {position}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"


def _read_params(params: Any) -> tuple[list[Any], list[str] | None]:
    """The tensors and, when they came as (name, tensor) pairs, the names."""
    if isinstance(params, Tensor):
        return [params], None
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering "
            "of tensors in sets will change between runs. Please use a list instead."
        )
    entries = list(params)
    named = [isinstance(entry, tuple) for entry in entries]
    if not any(named):
        return entries, None
    if not all(named):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing"
        )
    return [tensor for _, tensor in entries], [name for name, _ in entries]


def _adopt(param: Tensor, state: dict[str, Any]) -> dict[str, Any]:
    """A copy of a parameter's state; tensors follow the parameter, the step stays on the host."""
    adopted = {}
    for key, value in state.items():
        if not isinstance(value, Tensor):
            adopted[key] = deepcopy(value)
        elif key == "step":
            adopted[key] = value.detach().to("cpu", copy=True)
        else:
            dtype = param.dtype if param.is_floating_point() else value.dtype
            adopted[key] = value.detach().to(param.device, dtype, copy=True)
    return adopted
