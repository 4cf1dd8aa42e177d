"""AdamW: Adam with weight decay apart from the gradient."""

from __future__ import annotations

import math
from typing import Any

from ..backends import backend_of
from ..creation import tensor, zeros_like
from ..dtypes import float32
from ..tensor import Tensor
from .optimizer import Optimizer, Params, check_range, scaled


class AdamW(Optimizer):
    """Adam with decoupled weight decay: param -= lr * (m / (√v + eps) + weight_decay * param).

    m and v are running averages of the gradient and its square with factors `betas`, corrected
    for their start at zero; `amsgrad` uses the largest v so far; `maximize` climbs instead.
    Source: Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, in PyTorch's form.

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
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        check_range("learning rate", lr)
        check_range("epsilon value", eps)
        check_range("beta parameter at index 0", betas[0], below=1.0)
        check_range("beta parameter at index 1", betas[1], below=1.0)
        check_range("weight_decay value", weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for param in params:
            assert param.grad is not None
            state = self.state[param]
            if not state:
                state["step"] = tensor(0.0, dtype=float32, device="cpu")  # read without waiting
                state["exp_avg"] = zeros_like(param)
                state["exp_avg_sq"] = zeros_like(param)
                if group["amsgrad"]:
                    state["max_exp_avg_sq"] = zeros_like(param)
            state["step"]._array += 1
            step = state["step"].item()
            array, grad = param._array, param.grad._array
            xp = backend_of(array).xp
            if group["maximize"]:
                grad = scaled(xp, grad, -1)
            if group["weight_decay"] != 0:
                grad = self._decay(array, grad, group)
            largest = state["max_exp_avg_sq"]._array if group["amsgrad"] else None
            for parts in zip(
                _real(array),
                _real(grad),
                _real(state["exp_avg"]._array),
                _real(state["exp_avg_sq"]._array),
                (None, None) if largest is None else _real(largest),
            ):
                adapt(
                    *parts,
                    beta1=beta1,
                    beta2=beta2,
                    rate=group["lr"] / (1 - beta1**step),
                    root=math.sqrt(1 - beta2**step),
                    eps=group["eps"],
                )
            param.counter[0] += 1

    def _decay(self, param: Any, grad: Any, group: dict[str, Any]) -> Any:
        """Apply the weight decay to the parameter, in place; the gradient to go on with."""
        param *= 1 - group["lr"] * group["weight_decay"]
        return grad


def _real(array: Any) -> tuple[Any, ...]:
    """An array as real ones that share its memory: a complex number is two independent reals."""
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


def adapt(
    param: Any,
    grad: Any,
    average: Any,
    square: Any,
    largest: Any | None,
    *,
    beta1: float,
    beta2: float,
    rate: float,
    root: float,
    eps: float,
) -> None:
    """One step on real arrays in place, all but `grad`: param -= rate * m / (√v / root + eps)."""
    xp = backend_of(param).xp
    scratch = xp.subtract(grad, average, out=xp.empty_like(param))
    scratch *= 1 - beta1
    average += scratch
    square *= beta2
    xp.multiply(grad, grad, out=scratch)
    scratch *= 1 - beta2
    square += scratch
    if largest is not None:
        square = xp.maximum(largest, square, out=largest)
    xp.sqrt(square, out=scratch)
    scratch /= root
    scratch += eps
    xp.divide(average, scratch, out=scratch)
    scratch *= rate
    param -= scratch
