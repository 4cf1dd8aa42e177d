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
from ..autograd.recording.node import RemovableHandle
from ..dtypes import float32
from ..functions.creation.factories import tensor
from ..tensor import Tensor
from .step_hooks import Hooks, observed, registered

Params = Iterable[Any]  # of tensors, of (name, tensor), or of group dictionaries


def check_range(name: str, value: float, *, below: float = math.inf) -> None:
    """ValueError, in PyTorch's words, unless 0 <= `value` < `below`; TypeError for a Tensor."""
    if isinstance(value, Tensor):
        raise TypeError(f"{name}: got a Tensor, want a Python number, such as tensor.item()")
    if not 0.0 <= value < below:
        raise ValueError(f"Invalid {name}: {value}")


def check_rate(lr: float | Tensor) -> None:
    """ValueError, in PyTorch's words, unless a rate is a number, or a tensor of one, and >= 0."""
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        lr = float(lr.detach())
    check_range("learning rate", lr)


def check_ways(
    foreach: bool | None, fused: bool | None, differentiable: bool, capturable: bool = False
) -> None:
    """Raises for what is no way to compute an update, in PyTorch's words where it has them."""
    for name, value in (("foreach", foreach), ("fused", fused)):
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool or None, not {type(value).__name__}")
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if capturable:
        raise NotImplementedError("capturable=True: CUDA graphs are not captured yet; leave it out")


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
        self.hooks = Hooks()
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = observed(vars(cls)["step"])  # type: ignore[method-assign]

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
        if param_group.get("fused") and not all(p.is_floating_point() for p in params):
            raise RuntimeError(
                "`fused=True` requires all the params to be floating point Tensors of supported "
                "devices: ['cpu', 'cuda', 'simulated']"
            )
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

    @observed
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; returns what `closure` returned.

        `closure` evaluates the model again, with gradients, before the update.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            with enable_grad() if group.get("differentiable", False) else no_grad():
                self._update([p for p in group["params"] if p.grad is not None], group)
        return loss

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Change `params`, which all have gradients, in place; the memory goes to `state`."""
        raise NotImplementedError(f"{type(self).__name__} has no _update")

    def state_dict(self) -> dict[str, Any]:
        """`state` and `param_groups` with every parameter replaced by its number.

        State tensors are shared, not copied.
        """
        for hook in list(self.hooks.before_save.values()):
            hook(self)
        number: dict[Tensor, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                number.setdefault(param, len(number))
            packed = {key: value for key, value in group.items() if key != "params"}
            groups.append({**packed, "params": [number[param] for param in group["params"]]})
        state = {number.get(key, key): value for key, value in self.state.items()}
        saved: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self.hooks.after_save.values()):
            changed = hook(self, saved)
            saved = saved if changed is None else changed
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state and settings that `state_dict` gave, in the order of parameters.

        State tensors are copied to each parameter's device and dtype.

        Raises:
            ValueError: when the groups differ in number or size.
        """
        state_dict = state_dict.copy()
        for hook in list(self.hooks.before_load.values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
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
            for name, default in self.defaults.items():  # of a version that did not have it
                new.setdefault(name, default)
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _adopt(params[key], value)
            else:
                state[key] = value
        self.state = state
        self.param_groups = saved
        for hook in list(self.hooks.after_load.values()):
            hook(self)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before each step; it may return other arguments."""
        return registered(self.hooks.before_step, hook, False)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        return registered(self.hooks.after_step, hook, False)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer)` before each `state_dict()`."""
        return registered(self.hooks.before_save, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` after `state_dict()`; it may return another one."""
        return registered(self.hooks.after_save, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` before a load; it may return another one."""
        return registered(self.hooks.before_load, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer)` after each load."""
        return registered(self.hooks.after_load, hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "hooks"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.hooks = Hooks()

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
        if key == "step" and isinstance(value, (int, float)):  # PyTorch's, before 1.12
            adopted[key] = tensor(float(value), dtype=float32, device="cpu")
        elif not isinstance(value, Tensor):
            adopted[key] = deepcopy(value)
        elif key == "step":
            adopted[key] = value.detach().to("cpu", copy=True)
        else:
            dtype = param.dtype if param.is_floating_point() else value.dtype
            adopted[key] = value.detach().to(param.device, dtype, copy=True)
    return adopted
