"""Learning rates that fall along half a cosine."""

from __future__ import annotations

import math
from typing import Any

from ..optimizer import Optimizer
from .scheduler import LRScheduler, Rates, _enable_get_lr_call, set_value, values_of

__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts"]


class CosineAnnealingLR(LRScheduler):
    """Has the rates fall to `eta_min` along a cosine in `T_max` epochs, then rise again.

    Source: Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983, without its restarts.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> round(scheduler.get_last_lr()[0], 6)
    0.25
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        epoch, groups = self.last_epoch, self.optimizer.param_groups
        if self._is_initial:
            return self._unchanged()
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # where the fraction below is 0 / 0
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [group["lr"] + (base - self.eta_min) * rise
                    for base, group in zip(self.base_lrs, groups, strict=True)]  # fmt: skip
        now, before = (1 + math.cos(math.pi * e / self.T_max) for e in (epoch, epoch - 1))
        return [
            now / before * (group["lr"] - self.eta_min) + self.eta_min for group in groups
        ]  # fmt: skip

    def _get_closed_form_lr(self) -> Rates:
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [self.eta_min + (lr - self.eta_min) * height / 2 for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Has the rates fall to `eta_min` along a cosine, again and again from the first ones.

    The first fall takes `T_0` epochs, each next one `T_mult` times as many. `step` takes parts of
    epochs too: `step(epoch + batch / batches)`. Source: Loshchilov & Hutter 2017,
    https://arxiv.org/abs/1608.03983.

    Raises:
        ValueError: T_0 or T_mult are no positive integers, or eta_min no number.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> for epoch in (1, 2):
    ...     scheduler.step()
    ...     print(round(scheduler.get_last_lr()[0], 6))
    0.25
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i = T_0
        self.T_cur: Any = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates at `T_cur` epochs since the last restart, of `T_i`."""
        self._warn_unless_stepping()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (lr - self.eta_min) * height / 2 for lr in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Goes on to the next epoch, or to the one that is given, which may be between two.

        ValueError for a negative one.
        """
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur = self.T_cur % self.T_i
                self.T_i = self.T_i * self.T_mult
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        with _enable_get_lr_call(self):
            for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
                set_value(group, "lr", lr)
        self._last_lr = values_of(self.optimizer, "lr")

    def _go_to(self, epoch: Any) -> None:
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
