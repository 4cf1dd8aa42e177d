"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

from ..dtypes import float32
from ..tensor import Tensor
from .checks import check_adam, check_call, check_capturable, check_setting, check_steps
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule

__all__ = ["NAdam", "nadam"]


@rule(numbers="step mu_product", begins={"mu_product": 1.0})
def nadam_rule(
    m: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, mu_product: Any, step: Any, *,
    lr: Any, beta1: Any, beta2: Any, eps: Any, weight_decay: Any, momentum_decay: Any,
    decoupled: bool, maximize: bool, single: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= (lr (1 - μₜ) / (1 - Πμ) · g + lr μₜ₊₁ / (1 - Πμ μₜ₊₁) · m) / (√(v / (1 - β2ᵗ)) + ε)."""
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None and decoupled:
        param = param * (1 - lr * weight_decay)
    elif weight_decay is not None:
        grad = grad + weight_decay * param
    mu = beta1 * (1 - 0.5 * 0.96 ** (step * momentum_decay))
    mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
    mu_product = m.single(mu_product * m.single(mu)) if single else mu_product * mu
    exp_avg = exp_avg + (1 - beta1) * (grad - exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    denominator = m.sqrt(exp_avg_sq / (1 - beta2**step)) + eps
    param = param - lr * (1 - mu) / (1 - mu_product) * (grad / denominator)
    param = param - lr * mu_next / (1 - mu_product * mu_next) * (exp_avg / denominator)
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq,
            "mu_product": mu_product, "step": step}  # fmt: skip


def nadam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    mu_products: list[Tensor],
    state_steps: list[Tensor],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float,
    momentum_decay: float,
    eps: float,
) -> None:
    """One step of NAdam on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable)
    check_steps(mu_products, "mu_products")
    if capturable:
        check_capturable(params, mu_products)
    states: dict[str, list[Any]] = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs,
              "mu_product": mu_products, "step": state_steps}  # fmt: skip
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps,
                "weight_decay": nonzero(weight_decay), "momentum_decay": momentum_decay,
                "decoupled": decoupled_weight_decay, "maximize": maximize,
                "single": all(product.dtype is float32 for product in mu_products)}  # fmt: skip
    advance(nadam_rule, params, grads, states, settings, differentiable)


class NAdam(RuledOptimizer):
    """NAdam: Adam that looks ahead along its momentum, which grows as `momentum_decay` says.

    The momentum of step t is beta1 * (1 - 0.5 * 0.96^(t * momentum_decay)). weight_decay * param is
    added to the gradient, or taken from the parameter with `decoupled_weight_decay`; `maximize`
    climbs instead. Source: Dozat 2016, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ, in
    PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach: PyTorch's way to compute the same. There is one way here, an update in place of
            each parameter, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting, or a beta outside [0, 1).

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.NAdam([w], lr=0.25).step()
    >>> w
    tensor([0.7359, 0.7359], requires_grad=True)
    """

    _function = staticmethod(nadam)
    _rule = nadam_rule
    _settings = (
        "lr betas eps weight_decay momentum_decay "
        "decoupled_weight_decay maximize foreach capturable differentiable"
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        check_setting("momentum_decay value", momentum_decay)
        super().__init__(params, locals())
