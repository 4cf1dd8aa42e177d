"""Learning rates that go up and down between two bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from ..optimizer import Optimizer
from .momentum import begin_momentums, set_momentum, uses_beta1
from .scheduler import LRScheduler, Rates, check_optimizer, one_for_each_group, set_value

__all__ = ["CyclicLR"]


class CyclicLR(LRScheduler):
    """Has the rates rise and fall in a triangle between `base_lr` and `max_lr`, batch by batch.

    A rise takes `step_size_up` steps, a fall `step_size_down`. The height of the triangles is
    constant in mode "triangular", halved with each cycle in "triangular2", times gamma^steps in
    "exp_range", or `scale_fn` of the cycle or of the steps, as `scale_mode` says. With
    `cycle_momentum` the momentum, or the first beta, goes the opposite way. Source: Smith 2017,
    https://arxiv.org/abs/1506.01186.

    Raises:
        ValueError: for another mode without a `scale_fn`; for lists of the wrong length; when the
            optimizer has no momentum to cycle.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.25, 0.75, step_size_up=2)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr(), round(optimizer.param_groups[0]["momentum"], 6)
    ([0.5], 0.85)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = one_for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_value(group, "lr", lr)
        self.max_lrs = one_for_each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_ref: Callable[[float], float]
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = uses_beta1(optimizer)
            self.base_momentums, self.max_momentums = begin_momentums(
                optimizer, base_momentum, max_momentum, self.use_beta1, last_epoch == -1
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is not None:
            return
        self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"
        if self.mode == "triangular":
            self._scale_fn_ref = self._triangular_scale_fn
        elif self.mode == "triangular2":
            self._scale_fn_ref = self._triangular2_scale_fn
        else:
            self._scale_fn_ref = partial(self._exp_range_scale_fn, self.gamma)

    def scale_fn(self, x: float) -> float:
        """The height of a triangle, in cycle or step x."""
        custom = self._scale_fn_custom
        return self._scale_fn_ref(x) if custom is None else custom(x)

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 1 / (2.0 ** (x - 1))

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, which counts batches; sets the momentums, too."""
        self._warn_unless_stepping()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rises = x <= self.step_ratio
        share = x / self.step_ratio if rises else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums,
                         strict=True)  # fmt: skip
            for group, least, most in bounds:
                set_momentum(group, most - (most - least) * share * scale, self.use_beta1)
        return [base + (most - base) * share * scale
                for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; of an object `scale_fn` its own, None of a function."""
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        custom = state.pop("_scale_fn_custom")
        is_object = custom is not None and not isinstance(custom, FunctionType)
        return state | {"_scale_fn_custom": vars(custom).copy() if is_object else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned; a function `scale_fn` stays what it is."""
        state = dict(state_dict)
        attributes = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if attributes is not None:
            vars(self._scale_fn_custom).update(attributes)
        self._init_scale_fn()
