"""Adam: with weight decay as part of the gradient."""

from __future__ import annotations

from typing import Any

from ..backends import backend_of
from .adamw import AdamW
from .optimizer import Params, scaled


class Adam(AdamW):
    """Adam: param -= lr * m / (√v + eps), of the gradient plus weight_decay * param.

    m, v and the settings are as in AdamW, which takes the weight decay out of the averages.
    Source: Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, in PyTorch's form.

    Raises:
        ValueError: for a negative setting, or a beta outside [0, 1).

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.Adam([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)

    def _decay(self, param: Any, grad: Any, group: dict[str, Any]) -> Any:
        """The gradient with the weight decay's part; the parameter stays as it is."""
        return grad + scaled(backend_of(param).xp, param, group["weight_decay"])
