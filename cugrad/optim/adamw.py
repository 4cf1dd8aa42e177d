"""AdamW: Adam with weight decay apart from the gradient."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .adam import Adam, adam
from .optimizer import ParamsT

__all__ = ["AdamW", "adamw"]


class AdamW(Adam):
    """Adam with decoupled weight decay: param -= lr * (m / (√v + eps) + weight_decay * param).

    Arguments are those of Adam. Source: Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101,
    in PyTorch's form.

    Raises:
        ValueError: for a negative setting, or a beta outside [0, 1).

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.AdamW([w], lr=0.25, weight_decay=0.0).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes over a state; that of a version whose AdamW was no Adam decays apart, too."""
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adamw(
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
    *,
    amsgrad: bool,
    beta1: float | Tensor,
    beta2: float | Tensor,
    lr: float | Tensor,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of AdamW on lists of tensors, in place; the arguments are those of the class."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach, capturable,
        differentiable, fused, grad_scale, found_inf, has_complex, True, amsgrad=amsgrad,
        beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
