"""One cycle: learning rates that rise from small to large, then fall to next to nothing."""

from __future__ import annotations

import math
from typing import Any

from ..optimizer import Optimizer
from .momentum import begin_momentums, set_momentum, uses_beta1
from .scheduler import LRScheduler, Rates, check_optimizer, one_for_each_group

__all__ = ["OneCycleLR"]


class OneCycleLR(LRScheduler):
    """Has the rates rise from max_lr / div_factor to `max_lr`, and fall, once, batch by batch.

    The rise takes the share `pct_start` of `total_steps`, or of epochs * steps_per_epoch. The last
    rate is the first over `final_div_factor`; with `three_phase` the first is reached on the way.
    `anneal_strategy` is "cos" or "linear". With `cycle_momentum` the momentum, or the first beta,
    goes the opposite way. Source: Smith & Topin 2018, https://arxiv.org/abs/1708.07120.

    Raises:
        ValueError: no steps are said, or not a positive integer; pct_start is no float in [0, 1];
            for another strategy; when the optimizer has no momentum; for a step after the last.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> scheduler = torch.optim.lr_scheduler.OneCycleLR(
    ...     optimizer, max_lr=1.0, total_steps=10, pct_start=0.5, div_factor=4.0
    ... )
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or pct_start < 0 or pct_start > 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        max_lrs = one_for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for most, group in zip(max_lrs, optimizer.param_groups):
                group["initial_lr"] = most / div_factor
                group["max_lr"] = most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = uses_beta1(optimizer)
            begin_momentums(
                optimizer, base_momentum, max_momentum, self.use_beta1, last_epoch == -1
            )
        super().__init__(optimizer, last_epoch)

    def _anneal_func(self, start: Any, end: Any, pct: float) -> Any:
        if self._anneal_func_type == "cos":
            return self._annealing_cos(start, end, pct)
        return self._annealing_linear(start, end, pct)

    @staticmethod
    def _annealing_cos(start: Any, end: Any, pct: float) -> Any:
        """From `start` to `end` along half a cosine, as `pct` goes from 0 to 1."""
        return end + (start - end) / 2.0 * (math.cos(math.pi * pct) + 1)

    @staticmethod
    def _annealing_linear(start: Any, end: Any, pct: float) -> Any:
        """From `start` to `end` along a line, as `pct` goes from 0 to 1."""
        return (end - start) * pct + start

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, which counts batches; sets the momentums, too."""
        self._warn_unless_stepping()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start, phase = 0.0, self._schedule_phases[0]
        for following in self._schedule_phases[1:]:
            if step <= phase["end_step"]:
                break
            start, phase = phase["end_step"], following
        pct = (step - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], pct))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                set_momentum(group, self._anneal_func(*ends, pct), self.use_beta1)
        return rates


def _steps(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    """How many steps there are. ValueError unless that is said, by positive integers."""
    if total_steps is not None:
        counts = {"total_steps": total_steps}
    elif epochs is not None and steps_per_epoch is not None:
        counts = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    else:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, count in counts.items():
        if not isinstance(count, int) or count <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {count}")
    return math.prod(counts.values())


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
    """Where each phase ends, and between which settings of a group its rates and momentums go."""

    def phase(end: float, rates: str, momentums: str) -> dict[str, Any]:
        first, last, before, after = *rates.split(), *momentums.split()
        lrs = {"start_lr": f"{first}_lr", "end_lr": f"{last}_lr"}
        return {"end_step": end, **lrs, "start_momentum": f"{before}_momentum",
                "end_momentum": f"{after}_momentum"}  # fmt: skip

    top = float(pct_start * total_steps) - 1
    rise = phase(top, "initial max", "max base")
    if not three_phase:
        return [rise, phase(total_steps - 1, "max min", "base max")]
    down = float(2 * pct_start * total_steps) - 2
    return [rise, phase(down, "max initial", "base max"),
            phase(total_steps - 1, "initial min", "max max")]  # fmt: skip
