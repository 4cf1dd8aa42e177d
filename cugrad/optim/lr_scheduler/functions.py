"""Learning rates that functions of the epoch give."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..optimizer import Optimizer
from .scheduler import LRScheduler, Rates

__all__ = ["LambdaLR", "MultiplicativeLR"]

Function = Callable[[int], float]


class _FunctionLR(LRScheduler):
    """What both have: a function for all groups, or a list with one for each."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Function | list[Function], last_epoch: int = -1
    ) -> None:
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        several = isinstance(lr_lambda, (list, tuple))
        self.lr_lambdas: list[Any] = list(lr_lambda) if several else [lr_lambda] * count  # type: ignore[arg-type]
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        self._check_functions()
        super().__init__(optimizer, last_epoch)

    def _check_functions(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; of callable objects theirs, and None of functions."""
        state = super().state_dict()
        del state["lr_lambdas"]
        state["lr_lambdas"] = [None if isinstance(function, FunctionType) else vars(function).copy()
                               for function in self.lr_lambdas]  # fmt: skip
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned; functions stay what they are."""
        vars(self).update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if attributes is not None:
                vars(function).update(attributes)


class LambdaLR(_FunctionLR):
    """Has the first rates times `lr_lambda(epoch)`.

    Args:
        lr_lambda: a function, or a list with one for each group.

    Raises:
        ValueError: for a list of another length than there are groups.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1))
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`."""
        self._warn_unless_stepping()
        return [lr * function(self.last_epoch)
                for function, lr in zip(self.lr_lambdas, self.base_lrs, strict=True)]  # fmt: skip


class MultiplicativeLR(_FunctionLR):
    """Multiplies the rates by `lr_lambda(epoch)` every epoch.

    Args:
        lr_lambda: a function, or a list with one for each group.

    Raises:
        ValueError: for a list of another length than there are groups.
        TypeError: for what is not callable.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def _check_functions(self) -> None:
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(
                    f"lr_lambda should be a function, but got {type(function).__name__}"
                )

    def get_lr(self) -> Rates:
        """The rates of `last_epoch`, from those before."""
        self._warn_unless_stepping()
        if self._is_initial:
            return self._unchanged()
        groups = self.optimizer.param_groups
        return [group["lr"] * function(self.last_epoch)
                for function, group in zip(self.lr_lambdas, groups, strict=True)]  # fmt: skip
