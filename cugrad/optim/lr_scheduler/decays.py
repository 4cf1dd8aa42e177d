"""Learning rates that fall, or rise at first, as a formula of the epoch says."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from ..optimizer import Optimizer
from .scheduler import LRScheduler, Rates

__all__ = ["ConstantLR", "ExponentialLR", "LinearLR", "MultiStepLR", "PolynomialLR", "StepLR"]


class StepLR(LRScheduler):
    """Multiplies the rates by `gamma` every `step_size` epochs.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._unchanged()
        return self._times(self.gamma)

    def _get_closed_form_lr(self) -> Rates:
        return [lr * self.gamma ** (self.last_epoch // self.step_size) for lr in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplies the rates by `gamma` at each of the epochs `milestones`.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 10], gamma=0.5)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        if self.last_epoch not in self.milestones:
            return self._unchanged()
        return self._times(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> Rates:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [lr * self.gamma**passed for lr in self.base_lrs]


class ConstantLR(LRScheduler):
    """Has the rates times `factor` until epoch `total_iters`.

    ValueError unless the factor is in [0, 1].

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5).get_last_lr()
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        if self.last_epoch == 0:
            return self._times(self.factor)
        if self.last_epoch != self.total_iters:
            return self._unchanged()
        return self._times(1.0 / self.factor)

    def _get_closed_form_lr(self) -> Rates:
        factor = self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)
        return [lr * factor for lr in self.base_lrs]


class LinearLR(LRScheduler):
    """Has the rates times a factor that goes from one value to another in `total_iters` epochs.

    ValueError unless `start_factor` is in (0, 1] and `end_factor` in [0, 1].

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.375]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError(
                "Ending multiplicative factor expected to be between 0 and 1."
            )  # fmt: skip
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        if self.last_epoch == 0:
            return self._times(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._unchanged()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._times(1.0 + rise / before)

    def _get_closed_form_lr(self) -> Rates:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [lr * factor for lr in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rates by `gamma` every epoch.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        return self._unchanged() if self._is_initial else self._times(self.gamma)

    def _get_closed_form_lr(self) -> Rates:
        return [lr * self.gamma**self.last_epoch for lr in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Has the rates times (1 - epoch / total_iters)^power, 0 from then on.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.375]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._unchanged()
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._times((left / before) ** self.power)

    def _get_closed_form_lr(self) -> Rates:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [lr * left**self.power for lr in self.base_lrs]
