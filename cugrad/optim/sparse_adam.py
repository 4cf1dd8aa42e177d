"""SparseAdam: Adam for sparse gradients, which moves the rows that these have, and no others."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_betas, check_rate
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, rule

__all__ = ["SparseAdam", "sparse_adam"]


@rule(numbers="step")
def sparse_adam_rule(
    m: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, step: Any, *,
    lr: Any, beta1: Any, beta2: Any, eps: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= α √(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (√v + ε), with the averages m of g and v of g²."""
    if maximize:
        grad = -grad
    step = step + 1
    exp_avg = exp_avg + (1 - beta1) * (grad - exp_avg)
    exp_avg_sq = exp_avg_sq + (1 - beta2) * (grad * grad - exp_avg_sq)
    rate = lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    param = param - rate * (exp_avg / (m.sqrt(exp_avg_sq) + eps))
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step}


def sparse_adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    maximize: bool,
) -> None:
    """One step on lists of rows, in place; the arguments are those of the class."""
    states: dict[str, list[Any]] = {
        "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": state_steps
    }  # fmt: skip
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "maximize": maximize}
    advance(sparse_adam_rule, params, grads, states, settings, False)


class SparseAdam(RuledOptimizer):
    """Adam of the rows that a sparse gradient has: the averages of other rows stay as they are.

    Such gradients come from `Embedding(sparse=True)`. `maximize` climbs instead.

    Raises:
        ValueError: for a setting that is not positive, a beta outside [0, 1), parameters that are
            complex or sparse.
        RuntimeError: in `step`, for dense gradients.

    >>> import cugrad as torch
    >>> table = torch.nn.Embedding(4, 2, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> table(torch.tensor([1, 3])).sum().backward()
    >>> torch.optim.SparseAdam(table.parameters()).step()
    >>> (table.weight != before).any(1)
    tensor([False,  True, False,  True])
    """

    _function = staticmethod(sparse_adam)
    _rule = sparse_adam_rule
    _sparse_without = ()

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
        super().__init__(params, locals())
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

    def _check_param(self, param: Any) -> None:
        if isinstance(param, Tensor) and param.is_sparse:
            raise ValueError("SparseAdam requires dense parameter tensors, got a sparse one")
        super()._check_param(param)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        if any(not param._grad.is_sparse for param in params):  # type: ignore[union-attr]
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        super()._update(params, group)
