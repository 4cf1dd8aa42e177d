"""Adam: steps along the running mean of gradients, over the root of that of their squares."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_adam, check_call, check_ways
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule
from .scaling import scaled_by

__all__ = ["Adam", "adam"]

TENSOR_LR = "lr as a Tensor is not supported for capturable=False and foreach=True"


@rule(numbers="step", only={"max_exp_avg_sq": "amsgrad"})
def adam_rule(
    m: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, step: Any, *,
    lr: Any, beta1: Any, beta2: Any, eps: Any, weight_decay: Any, decoupled: bool, amsgrad: bool,
    maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr / (1 - β1ᵗ) · m / (√v / √(1 - β2ᵗ) + ε), with running averages m of g and v of g²."""
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None and decoupled:
        param = param * (1 - lr * weight_decay)
    elif weight_decay is not None:
        grad = grad + weight_decay * param
    exp_avg = exp_avg + (1 - beta1) * (grad - exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    if amsgrad:
        max_exp_avg_sq = m.maximum(max_exp_avg_sq, exp_avg_sq)
    root = m.sqrt(max_exp_avg_sq if amsgrad else exp_avg_sq) / m.sqrt(1 - beta2**step)
    param = param - lr / (1 - beta1**step) * (exp_avg / (root + eps))
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step,
            "max_exp_avg_sq": max_exp_avg_sq if amsgrad else None}  # fmt: skip


def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: float | Tensor,
    beta2: float | Tensor,
    lr: float | Tensor,
    weight_decay: float | Tensor,
    eps: float,
    maximize: bool,
) -> None:
    """One step of Adam on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable, fused)
    scaled = scaled_by(fused, grad_scale, found_inf)
    states: dict[str, list[Any]] = {
        "exp_avg": exp_avgs,
        "exp_avg_sq": exp_avg_sqs,
        "max_exp_avg_sq": max_exp_avg_sqs if amsgrad else [],
        "step": state_steps,
    }
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "amsgrad": amsgrad,
                "weight_decay": nonzero(weight_decay), "decoupled": decoupled_weight_decay,
                "maximize": maximize}  # fmt: skip
    advance(adam_rule, params, grads, states, settings, differentiable, scaled)


class Adam(RuledOptimizer):
    """Adam: param -= lr * m / (√v + eps), of the gradient plus weight_decay * param.

    m and v are running averages of the gradient and its square with factors `betas`, corrected
    for their start at zero; `amsgrad` uses the largest v so far; `maximize` climbs instead;
    `decoupled_weight_decay` is AdamW. Source: Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, in
    PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        betas: two floats, or two tensors of one element.
        foreach, fused: PyTorch's ways to compute the same. There is one way here, an update in
            place, on CUDA in one launch for many parameters, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting, or a beta outside [0, 1).

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.Adam([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(adam)
    _rule = adam_rule
    _settings = (
        "lr betas eps weight_decay amsgrad "
        "maximize foreach capturable differentiable fused decoupled_weight_decay"
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError(TENSOR_LR)
        check_adam(lr, betas, eps, weight_decay)
        _check_kind_of(betas, bool(foreach and not capturable))
        betas = tuple(b.reshape(()) if isinstance(b, Tensor) else b for b in betas)  # type: ignore[assignment]
        super().__init__(params, locals())
        check_ways(foreach, fused, differentiable)
        self._step_supports_amp_scaling = bool(fused)

    def _arguments(self, group: dict[str, Any]) -> dict[str, Any]:
        if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise RuntimeError(TENSOR_LR)
        return super()._arguments(group)


def _check_kind_of(betas: Any, foreach: bool) -> None:
    """ValueError unless the betas are both floats, or both tensors of one element."""
    if not (all(isinstance(b, float) for b in betas) or all(isinstance(b, Tensor) for b in betas)):
        raise ValueError("betas must be either both floats or both Tensors")
    for at, beta in enumerate(betas):
        if isinstance(beta, Tensor) and foreach:
            raise ValueError(
                f"betas[{at}] as a Tensor is not supported for capturable=False and foreach=True"
            )
        if isinstance(beta, Tensor) and beta.numel() != 1:
            raise ValueError(f"Tensor betas[{at}] must be 1-element")
