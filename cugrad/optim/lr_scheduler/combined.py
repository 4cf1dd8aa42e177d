"""Several schedulers of one optimizer: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .plateau import ReduceLROnPlateau
from .scheduler import LRScheduler, set_value, values_of

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Combined(LRScheduler):
    """What both have: other schedulers, whose states are in its own."""

    _schedulers: list[Any]

    def _check(self, optimizer: Any, schedulers: Sequence[Any]) -> None:
        """Raises for what is no scheduler, or not of this optimizer."""
        name = type(self).__name__
        for at, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {at} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional kwargs to be specified when calling `step`, but got one at index "
                    f"{at} in the given schedulers sequence."
                )
            if optimizer != scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler {type(scheduler).__name__} at index {at} has "
                    f"{scheduler.optimizer}, which is different from {type(optimizer).__name__}."
                )

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; of the schedulers their states."""
        state = super().state_dict()
        return {k: v for k, v in state.items() if k != "_schedulers"} | {
            "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned."""
        vars(self).update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)


class SequentialLR(_Combined):
    """Runs schedulers one after another; each begins at its milestone, with its epoch 0.

    Raises:
        ValueError: there are none; the milestones are not one fewer; they belong to different
            optimizers; one is a ReduceLROnPlateau.
        TypeError: one has no optimizer.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> lr_scheduler = torch.optim.lr_scheduler
    >>> warmup = lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
    >>> for _ in range(3):
    ...     print(scheduler.get_last_lr())
    ...     optimizer.step()
    ...     scheduler.step()
    [0.25]
    [0.25]
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler, but got no scheduler."
            )
        self._check(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                "the number of milestone points, but got number of schedulers "
                f"{len(schedulers)} and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_value(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Takes back the first steps that schedulers have made, those within others too."""
        waiting = [self if sched is None else sched]
        while waiting:
            scheduler = waiting.pop()
            if hasattr(scheduler, "_schedulers"):
                waiting += scheduler._schedulers
            elif hasattr(scheduler, "last_epoch"):
                scheduler.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Goes on to the next epoch."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """Runs schedulers all at once: each changes the rates that the one before has set.

    Raises:
        ValueError: there are none; they belong to different optimizers; one is a
            ReduceLROnPlateau.
        TypeError: one has no optimizer.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> lr_scheduler = torch.optim.lr_scheduler
    >>> warmup = lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = lr_scheduler.ChainedScheduler([warmup, decay])
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.125]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no "
                "scheduler."
            )
        optimizer = optimizer or getattr(schedulers[0], "optimizer", None)
        self._check(optimizer, schedulers)
        self._schedulers = schedulers  # type: ignore[assignment]
        self.optimizer = optimizer  # type: ignore[assignment]
        self._last_lr = values_of(self._schedulers[-1].optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Has each scheduler take a step."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values_of(self._schedulers[-1].optimizer, "lr")
