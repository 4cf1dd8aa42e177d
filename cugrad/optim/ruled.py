"""RuledOptimizer: an optimizer whose step is a function of lists of tensors, by an update rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..autograd.mode import no_grad
from ..dtypes import float32, float64, get_default_dtype
from ..functions.creation.factories import full, full_like, zeros_like
from ..tensor import Tensor
from .checks import check_fused_param
from .optimizer import Optimizer, ParamsT
from .rules import Rule, noting

__all__ = ["RuledOptimizer", "count_of", "scalar_dtype"]

BETAS = ("beta1", "beta2")


def scalar_dtype(is_fused: Any = None) -> Any:
    """The dtype of states that are one number: PyTorch's choice."""
    return float64 if not is_fused and get_default_dtype() is float64 else float32


def count_of(
    param: Tensor, group: dict[str, Any], value: float = 0.0, here: bool = False
) -> Tensor:
    """A state that is one number: on the host, where it is read without waiting, unless `here`.

    `fused` and `capturable` steps read nothing: theirs are on the parameter's device.
    """
    here = here or bool(group.get("capturable") or group.get("fused"))
    device = param.device if here else "cpu"
    return full((), float(value), dtype=scalar_dtype(group.get("fused")), device=device)


class RuledOptimizer(Optimizer):
    """Base of the optimizers that are given by a function of parameters, gradients and states.

    Subclasses say `_function` and its `_rule`, and write `__init__`: its signature, its checks, and
    `super().__init__(params, locals())`. All arguments but `params` are settings, and become the
    `defaults`; `_settings` says their order where PyTorch has another than the arguments'.
    """

    _function: Callable[..., None]
    _rule: Rule
    _settings = ""
    _counts_here = False  # whether states that are one number are on the parameter's device
    _pairs: dict[str, tuple[str, str]] = {"betas": BETAS}  # settings of two: what they are called
    _accepted: tuple[str, ...] = ()
    _initial: dict[str, Any] = {}
    _notes = True
    # settings that must be off for sparse gradients; None: no setting makes them possible
    _sparse_without: tuple[str, ...] | None = None
    _dense_with: tuple[str, ...] = ()  # settings by which a sparse gradient moves other rows, too

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_function" in vars(cls):
            names = inspect.signature(cls._function).parameters
            cls._accepted = tuple(list(names)[2 + len(cls._rule.states) :])
            cls._by_element = cls._rule.elementwise
        if cls._update is not RuledOptimizer._update:
            cls._by_element = False
        if "__init__" in vars(cls):
            parameters = inspect.signature(cls).parameters.values()
            cls._initial = {p.name: p.default for p in parameters if p.default is not p.empty}

    def __init__(self, params: ParamsT, arguments: dict[str, Any]) -> None:
        settings = {name: arguments[name] for name in self._settings.split() if name in arguments}
        settings |= arguments
        for name in ("self", "params", "__class__"):
            settings.pop(name, None)
        super().__init__(params, settings)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes over a state, also one of a version without some settings or with plain numbers."""
        super().__setstate__(state)
        for group in self.param_groups:
            for name in self.defaults:
                if name in self._initial:
                    group.setdefault(name, self._initial[name])
            for param in group["params"]:
                kept = self.state.get(param, {})
                for name in self._rule.numbers:
                    if name in kept and not isinstance(kept[name], Tensor):
                        kept[name] = count_of(param, group, kept[name])

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        rule, state = self._rule, dict[str, Any]()
        for name, value in rule.first_values(group).items():
            if name in rule.numbers:
                state[name] = count_of(param, group, value, self._counts_here)
            elif value == 0:
                state[name] = param._in_parts(zeros_like(param))
            else:
                both = complex(value, value) if param.is_complex() else value
                state[name] = param._in_parts(full_like(param, both))
        return state

    def _arguments(self, group: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the function."""
        settings = {name: group[name] for name in self._accepted if name in group}
        for pair, names in self._pairs.items():
            if pair in group and names[0] in self._accepted:
                settings |= zip(names, group[pair])
        for name in ("grad_scale", "found_inf"):
            if name in self._accepted:
                settings[name] = getattr(self, name, None)
        return settings

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        if group.get("fused"):
            for param in params:
                check_fused_param(param)
        grads: list[Any] = [param._grad for param in params]
        if any(grad.is_sparse for grad in grads):
            if not self._is_spread(group):
                for param, grad in zip(params, grads):
                    if grad.is_sparse:
                        self._update_rows(param, grad, group)
                params = [param for param, grad in zip(params, grads) if not grad.is_sparse]
                if params:
                    self._update(params, group)
                return
            grads = [grad.detach().to_dense() if grad.is_sparse else grad for grad in grads]
        settings = self._arguments(group)
        if not self._remembers(group):
            type(self)._function(params, grads, *[[]] * len(self._rule.states), **settings)
            return
        states = [self.state.get(param) or self._begin(param, group) for param in params]
        if group.get("differentiable") and any(
            isinstance(step := state.get("step"), Tensor) and step.requires_grad for state in states
        ):
            raise RuntimeError("`requires_grad` is not supported for `step` in differentiable mode")
        self._rule.check(states, group)
        columns = [[state.get(name) for state in states] for name in self._rule.states]
        try:
            type(self)._function(params, grads, *columns, **settings)
        finally:  # those that are through keep the states that they have got
            for name, column in zip(self._rule.states, columns):
                for param, state, value in zip(params, states, column):
                    if value is not None and name not in state:
                        state[name] = param._in_parts(value) if self._rule.elementwise else value

    def _update_noting(
        self, params: list[Tensor], group: dict[str, Any], through: set[int]
    ) -> None:  # fmt: skip
        """As `_update`; `through` gets the ids of parameters that have come through their step,
        with their states. After an error the others are as they were.
        """
        with noting(through):
            self._update(params, group)

    def _is_spread(self, group: dict[str, Any]) -> bool:
        """Whether a step by a sparse gradient moves other rows, too, and may do so."""
        refused = any(group[name] for name in self._sparse_without or ())
        return not refused and any(group[name] for name in self._dense_with)

    def _update_rows(self, param: Tensor, grad: Any, group: dict[str, Any]) -> None:
        """The step of the places that a sparse gradient has: of the parameter, and of states.

        RuntimeError where the step would change other rows, too.
        """
        name = type(self).__name__
        if self._sparse_without is None:
            other = ", please consider SparseAdam instead" if name == "Adam" else ""
            raise RuntimeError(f"{name} does not support sparse gradients{other}")
        for setting in self._sparse_without:
            if group[setting]:
                raise RuntimeError(f"{setting} option is not compatible with sparse gradients")
        grad = grad.detach().coalesce()
        places = tuple(grad.indices().unbind())
        state: dict[str, Any] = {}
        if self._remembers(group):
            state = self.state.get(param) or self._begin(param, group)
        rows = {key: state.get(key) for key in self._rule.states}
        for key, value in rows.items():
            if isinstance(value, Tensor) and key not in self._rule.numbers:
                rows[key] = value[places]
        part = param.detach()[places]
        columns = [[value] for value in rows.values()]
        type(self)._function([part], [grad.values()], *columns, **self._arguments(group))
        with no_grad():
            param.index_put_(places, part)
            for key, column in zip(rows, columns):
                if isinstance(column[0], Tensor) and key not in self._rule.numbers and key in state:
                    state[key].index_put_(places, column[0])

    def _remembers(self, group: dict[str, Any]) -> bool:
        """Whether the group's parameters have states at all."""
        return True

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        self.state[param] = state = self._first_state(param, group)
        return state
