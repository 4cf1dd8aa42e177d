"""AdamW: Adam with weight decay apart from the gradient."""

from __future__ import annotations

from ..tensor import Tensor
from .adam import Adam
from .optimizer import Params


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
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
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
