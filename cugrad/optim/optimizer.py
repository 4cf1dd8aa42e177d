"""Optimizer: parameter groups, their settings and per-parameter state."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import wraps
from itertools import chain
from typing import Any, TypeAlias

from ..autograd.mode import enable_grad, in_grad_mode
from ..autograd.ranges import ranged
from ..autograd.recording.node import HookDict, RemovableHandle
from ..backends.several import at_home, by_device
from ..dtypes import float32
from ..functions.maths.together import zero_gradients
from ..graphs.capture import is_current_stream_capturing
from ..runtime.absent import explain
from ..tensor import Tensor
from .step_hooks import (
    HOOKS,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
    observed,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    registered,
)

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

ParamsT: TypeAlias = Iterable[Any]  # of tensors, of (name, tensor), or of group dictionaries
Params = ParamsT
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
StateDict: TypeAlias = dict[str, Any]
GLOBAL_HOOKS = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)  # PyTorch's names


class _RequiredParameter:
    """The default of a setting that every group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


class Optimizer:
    """Base class: holds `param_groups`, `defaults` and `state`; subclasses write `step`.

    `params` is an iterable of tensors, of (name, tensor) pairs, or of dictionaries that give a
    group's "params" and the settings in which it differs from `defaults`. Where `required` is a
    default, each group must give that setting. A subclass may also write `_update` alone, which
    `step` calls for each group with the parameters that have gradients.

    Raises:
        TypeError, ValueError: when `params` is empty, repeats a tensor or holds anything else.

    >>> import cugrad as torch
    >>> class Sign(torch.optim.Optimizer):
    ...     @torch.no_grad()
    ...     def step(self):
    ...         for group in self.param_groups:
    ...             for param in group["params"]:
    ...                 param -= group["lr"] * param.grad.sign()
    >>> w = torch.ones(2, requires_grad=True)
    >>> (w * 3).sum().backward()
    >>> Sign([w], {"lr": 0.25}).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    OptimizerPreHook: TypeAlias = Callable[[Any, Args, Kwargs], "tuple[Args, Kwargs] | None"]
    OptimizerPostHook: TypeAlias = Callable[[Any, Args, Kwargs], None]
    profile_hook_step = staticmethod(observed)
    _elsewhere: Any = None  # takes steps by buckets, where `memory.offload_states` places states
    _notes = False  # whether `_update_noting` says which parameters are through
    _by_element = False  # whether `_update` does the same with parts of a parameter, one by one
    _fills_gradients = False  # whether it was last told to set gradients to zero, which stay
    _stepping = False  # within a step whose hooks have run: a step of super's has none
    _optimizer_step_pre_hooks: HookDict
    _optimizer_step_post_hooks: HookDict
    _optimizer_state_dict_pre_hooks: HookDict
    _optimizer_state_dict_post_hooks: HookDict
    _optimizer_load_state_dict_pre_hooks: HookDict
    _optimizer_load_state_dict_post_hooks: HookDict

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__name__}"
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
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

    def _patch_step_function(self) -> None:
        """What optimizers call that set themselves up: here classes have their `step` watched."""
        self._make_hooks()

    def _make_hooks(self) -> None:
        for name in HOOKS:
            if name not in vars(self):
                setattr(self, name, HookDict())

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimise more parameters, with settings of their own, from now on.

        Raises:
            TypeError: it is no dict, or its "params" are a set or hold what is no tensor.
            ValueError: a tensor is no leaf, or in a group already; a required setting is missing;
                some parameters have names and some have none.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params, names = _read_params(param_group["params"])
        param_group["params"] = params
        if names is not None:
            param_group["param_names"] = names
        for param in params:
            self._check_param(param)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                with_or_without = "with" if "param_names" in param_group else "without"
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param "
                    f"group {with_or_without} names to the optimizer"
                )
        taken = set(chain.from_iterable(group["params"] for group in self.param_groups))
        if not taken.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _check_param(self, param: Any) -> None:
        if not isinstance(param, Tensor):
            raise TypeError(
                "optimizer can only optimize Tensors, but one of the params is "
                + type(param).__name__
            )
        if param.is_sparse:
            raise NotImplementedError(
                "optimizer: got a sparse parameter, want a dense one; optimize its values(), and "
                "make it of them in each step"
            )
        if not self.defaults.get("differentiable") and not (param.is_leaf or param.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros when `set_to_none` is False."""
        name = type(self).__name__
        with ranged(f"Optimizer.zero_grad#{name}.zero_grad", "optimizer"):
            params = chain.from_iterable(group["params"] for group in self.param_groups)
            if self._fills_gradients == bool(set_to_none):
                self._fills_gradients = not set_to_none
            if not set_to_none:
                zero_gradients(params)
                return
            for param in params:
                if param.grad is not None:
                    param.grad = None

    @observed
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; returns what `closure` returned.

        `closure` evaluates the model again, with gradients, before the update.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        in_grad_mode(self.defaults.get("differentiable", False), self._update_groups)
        return loss

    def _update_groups(self) -> None:
        for group in self.param_groups:
            trained = [param for param in group["params"] if param._grad is not None]
            for params in by_device(trained):
                with at_home(*params):
                    if self._elsewhere is None:
                        self._update(params, group)
                    else:
                        self._elsewhere.update(self, params, group)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Change `params`, which all have gradients, in place; the memory goes to `state`."""
        raise NotImplementedError(
            f"{type(self).__name__} has neither a `step` nor an `_update` of its own"
        )

    def state_dict(self) -> dict[str, Any]:
        """`state` and `param_groups` with every parameter replaced by its number.

        State tensors are shared, not copied.
        """
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        number: dict[int, int] = {}
        groups, start = [], 0
        for group in self.param_groups:
            for at, param in enumerate(group["params"], start):
                number.setdefault(id(param), at)
            start += len(group["params"])
            packed = {key: value for key, value in group.items() if key != "params"}
            groups.append({**packed, "params": [number[id(param)] for param in group["params"]]})
        state = {
            number[id(key)] if isinstance(key, Tensor) else key: value
            for key, value in self.state.items()
        }
        saved: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
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
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
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
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _adopt(params[key], value, key, state_dict["param_groups"])
                if self._elsewhere is not None:
                    self._elsewhere.take(params[key], state[params[key]])
            else:
                state[key] = value
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor, value: Tensor, param_id: Any, param_groups: list[Any], key: Any = None
    ) -> Tensor:
        """A copy of a state's tensor for a parameter; the count of steps stays where it is read."""
        value = value.detach()
        groups = [group for group in param_groups if param_id in group["params"]]
        group: dict[str, Any] = groups[0] if groups else {}
        if key == "step":
            on_device = group.get("fused") or group.get("capturable")
            return value.to(param.device, float32, copy=True) if on_device else value.clone()
        dtype = param.dtype if param.is_floating_point() else value.dtype
        return value.to(param.device, dtype, copy=True)

    def _accelerator_graph_capture_health_check(self) -> None:
        """RuntimeError where the step is captured in a CUDA graph and its numbers are the host's:
        they would be the same in each replay.
        """
        if not is_current_stream_capturing():
            return
        if "capturable" in self.defaults and not all(g["capturable"] for g in self.param_groups):
            raise RuntimeError(
                "Attempting CUDA graph capture of step() for an instance of "
                f"{type(self).__name__} but param_groups' capturable is False."
            )

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before each step; it may return other arguments.

        `args` begins with the optimizer itself, as in PyTorch.
        """
        return registered(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        return registered(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer)` before each `state_dict()`."""
        return registered(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` after `state_dict()`; it may return another one."""
        return registered(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` before a load; it may return another one."""
        return registered(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Calls `hook(optimizer)` after each load."""
        return registered(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items()
                if name not in HOOKS and name not in ("step", "_elsewhere")}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for position, group in enumerate(self.param_groups):
            names = sorted(group.keys() - {"params"})
            lines = [f"    {name}: {group[name]}\n" for name in names]
            text += f"\nParameter Group {position}\n" + "".join(lines)
        return text + ")"


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` that is recorded if the optimizer is differentiable; other libraries' use it."""

    @wraps(step)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        recorded = bool(self.defaults["differentiable"])
        return in_grad_mode(recorded, lambda: step(self, *args, **kwargs))

    return run


def _default_to_fused_or_foreach(
    params: Any, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether to take fused or foreach functions: there are none, a step is one way."""
    return False, False


def _get_value(x: Any) -> Any:
    """The number that a tensor of one element has; a number as it is."""
    return x.item() if isinstance(x, Tensor) else x


def _to_scalar(x: Any) -> Any:
    """A tensor of one element without dims; a number as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


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
    return [entry[1] for entry in entries], [entry[0] for entry in entries]


def _adopt(param: Tensor, value: Any, param_id: Any, groups: list[Any], key: Any = None) -> Any:
    """A copy of a parameter's state, whose tensors follow the parameter."""
    if isinstance(value, Tensor):
        process = Optimizer._process_value_according_to_param_policy
        return process(param, value, param_id, groups, key)
    if isinstance(value, dict):
        if "master" in value:  # of `memory.offload_states`: all of it has the master's dtype
            return {k: _as_it_is(param, v) for k, v in value.items()}
        return {k: _adopt(param, v, param_id, groups, k) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)(_adopt(param, v, param_id, groups) for v in value)
    return deepcopy(value)


def _as_it_is(param: Tensor, value: Any) -> Any:
    """A copy of what a parameter's state has, in that dtype; what has dims goes to the device."""
    if not isinstance(value, Tensor):
        return deepcopy(value)
    return value.detach().to(param.device if value.ndim else value.device, copy=True)


explain(__name__)
