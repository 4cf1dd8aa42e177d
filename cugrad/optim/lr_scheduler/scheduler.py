"""LRScheduler: counts epochs, and writes the learning rates that a subclass computes."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ...tensor import Tensor
from ..optimizer import Optimizer

__all__ = ["EPOCH_DEPRECATION_WARNING", "LRScheduler"]

Rates = list[Any]  # of numbers, or of tensors of one element, one for each group

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available."
)
MORE = " See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
OVERRIDDEN = (
    "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
    "initialization. Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`."
    + MORE
)
TOO_EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, "
    "you should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  "
    "Failure to do this will result in PyTorch skipping the first value of the learning rate "
    "schedule." + MORE
)
NOT_RESUMABLE = (
    "param 'initial_lr' is not specified in param_groups[{}] when resuming scheduler with "
    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 "
    "for a fresh training run (not recommended)"
)


class LRScheduler:
    """Base class: `step` sets the learning rates of an optimizer's groups to those of `get_lr`.

    A subclass writes `get_lr`, which sees `last_epoch`, `base_lrs` (the rates at the beginning) and
    the optimizer's groups. `_get_closed_form_lr`, where there is one, serves `step(epoch)`.

    Args:
        last_epoch: the epoch that training goes on from; -1 to begin. Then groups get an
            "initial_lr", which they have to have otherwise.

    Raises:
        TypeError: `optimizer` is none.
        KeyError: it has no "initial_lr" to go on from.

    >>> import cugrad as torch
    >>> class Halving(torch.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [lr / 2**self.last_epoch for lr in self.base_lrs]
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = Halving(optimizer)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for at, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(NOT_RESUMABLE.format(at))
        self.base_lrs: Rates = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        """Sets the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All of its attributes but the optimizer."""
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned."""
        vars(self).update(state_dict)

    def get_last_lr(self) -> Rates:
        """The rates that were set last."""
        return self._last_lr

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`; for subclasses to write, and for `step` to call."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch, or to the one that is given, which warns."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warnings.warn(OVERRIDDEN, UserWarning, stacklevel=2)
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn(TOO_EARLY, UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with _enable_get_lr_call(self):
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
                values = closed_form()
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            set_value(group, "lr", lr)
        self._last_lr: Rates = values_of(self.optimizer, "lr")

    def _warn_unless_stepping(self) -> None:
        """For `get_lr`, whose value is that of the epoch to come while `step` calls it."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _times(self, factor: Any) -> Rates:
        """The rates of now, times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _unchanged(self) -> Rates:
        return values_of(self.optimizer, "lr")


class _LRScheduler(LRScheduler):
    """The name that LRScheduler had; classes may still be made of it."""


@contextmanager
def _enable_get_lr_call(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """In it `get_lr` does not warn."""
    scheduler._get_lr_called_within_step = True
    try:
        yield scheduler
    finally:
        scheduler._get_lr_called_within_step = False


def _note_steps(optimizer: Any) -> None:
    """Has an optimizer remember that a step was taken."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    weak, step = weakref.ref(optimizer), optimizer.step.__func__

    @wraps(step)
    def noted(*args: Any, **kwargs: Any) -> Any:
        owner: Any = weak()
        owner._opt_called = True
        return step(owner, *args, **kwargs)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = noted


def check_optimizer(optimizer: Any) -> None:
    """TypeError unless it is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def one_for_each_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """A setting for each group. ValueError for a list of another length than there are groups."""
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(values)} values, param_groups has {count}."
        )
    return [_copied(each) for each in values]


def values_of(optimizer: Optimizer, key: str) -> list[Any]:
    """A setting of all groups; tensors are copied."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def set_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Sets a group's setting; a tensor stays the same one, and is filled."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[key] = value
