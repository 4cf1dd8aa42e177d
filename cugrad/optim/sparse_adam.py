"""SparseAdam: an optimizer of sparse gradients, of which there are none: its step says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.mode import enable_grad, no_grad
from ..tensor import Tensor
from .checks import check_betas, check_rate
from .optimizer import Optimizer, ParamsT

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients. There are none here yet: `step` raises for any gradient.

    The error is PyTorch's for dense gradients. Use Adam.

    Raises:
        ValueError: for a setting that is not positive, a beta outside [0, 1), complex parameters.
        RuntimeError: in `step`.

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.SparseAdam([w]).step()
    Traceback (most recent call last):
    RuntimeError: SparseAdam does not support dense gradients, please consider Adam instead
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_rate(lr)
        if not (lr.item() if isinstance(lr, Tensor) else lr) > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        indices = [
            [at, number]
            for at, group in enumerate(self.param_groups)
            for number, param in enumerate(group["params"])
            if param.is_complex()
        ]
        if indices:
            raise ValueError(
                f"Complex params at indices {indices}: SparseAdam does not support complex "
                "parameters"
            )

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Raises RuntimeError for any gradient, since all are dense."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            if any(param.grad is not None for param in group["params"]):
                raise RuntimeError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
        return loss
