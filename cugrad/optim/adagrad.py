"""Adagrad: steps over the root of the sum of all squared gradients."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_rate, check_setting, check_steps, check_ways
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule
from .scaling import scaled_by

__all__ = ["Adagrad", "adagrad"]


@rule(numbers="step", begins={"sum": "initial_accumulator_value"})
def adagrad_rule(
    m: Any, param: Any, grad: Any, sum: Any, step: Any, *,
    lr: Any, lr_decay: Any, eps: Any, weight_decay: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr / (1 + (t - 1) η) · g / (√s + ε), with the sum s of all g²."""
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    rate = lr / (1 + step * lr_decay)
    sum = sum + grad * grad
    param = param - rate * (grad / (m.sqrt(sum) + eps))
    return {"param": param, "sum": sum, "step": step + 1}


def adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    state_sums: list[Tensor],
    state_steps: list[Tensor],
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: float | Tensor,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of Adagrad on lists of tensors, in place; the arguments are those of the class."""
    check_ways(foreach, fused, differentiable)
    check_steps(state_steps)
    scaled = scaled_by(fused, grad_scale, found_inf)
    states: dict[str, list[Any]] = {"sum": state_sums, "step": state_steps}
    settings = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": nonzero(weight_decay),
                "maximize": maximize}  # fmt: skip
    advance(adagrad_rule, params, grads, states, settings, differentiable, scaled)


class Adagrad(RuledOptimizer):
    """Adagrad: param -= lr / (1 + (step - 1) * lr_decay) * gradient / (√sum + eps).

    `sum` is that of the squares of all gradients, which weight_decay * param is added to;
    it begins at `initial_accumulator_value`, and is made with the optimizer. `maximize` climbs
    instead. Source: Duchi et al. 2011, https://jmlr.org/papers/v12/duchi11a.html, in PyTorch's
    form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach, fused: PyTorch's ways to compute the same. There is one way here, an update in
            place, on CUDA in one launch for many parameters, which both True and False give.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting.

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.Adagrad([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(adagrad)
    _rule = adagrad_rule
    _settings = (
        "lr lr_decay eps weight_decay "
        "initial_accumulator_value foreach maximize differentiable fused"
    )
    _sparse_without = ("weight_decay",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        check_setting("lr_decay value", lr_decay)
        check_setting("weight_decay value", weight_decay)
        check_setting("initial_accumulator_value value", initial_accumulator_value)
        check_setting("epsilon value", eps)
        super().__init__(params, locals())
        check_ways(foreach, fused, differentiable)
        self._step_supports_amp_scaling = bool(fused)
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = self._first_state(param, group)

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        start = "initial_accumulator_value"  # a group has no say in it, as in PyTorch
        return super()._first_state(param, {**group, start: self.defaults[start]})

    def share_memory(self) -> None:
        """Moves the sums of squares into memory that processes share."""
        for states in self.state.values():
            states["sum"].share_memory_()
