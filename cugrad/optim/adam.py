"""Adam: steps along the running mean of gradients, over the root of that of their squares."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.mode import will_change
from ..autograd.recording.record import recorded
from ..autograd.recording.views import changed
from ..backends import backend_of
from ..dtypes import float32
from ..functions.creation.factories import tensor, zeros_like
from ..tensor import Tensor
from .optimizer import Optimizer, Params, check_range, check_rate, check_ways, scaled


class Adam(Optimizer):
    """Adam: param -= lr * m / (√v + eps), of the gradient plus weight_decay * param.

    m and v are running averages of the gradient and its square with factors `betas`, corrected
    for their start at zero; `amsgrad` uses the largest v so far; `maximize` climbs instead;
    `decoupled_weight_decay` is AdamW. Source: Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, in
    PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach, fused: PyTorch's ways to compute the same. There is one way here, an update in
            place of each parameter, which both True and False give.
        capturable: for CUDA graphs, which are not captured yet: True is an error.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and `lr` if it is a tensor.

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
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
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
        check_rate(lr)
        check_range("epsilon value", eps)
        check_range("beta parameter at index 0", betas[0], below=1.0)
        check_range("beta parameter at index 1", betas[1], below=1.0)
        check_range("weight_decay value", weight_decay)
        check_ways(foreach, fused, differentiable, capturable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            state = self.state[param]
            if not state:
                state["step"] = tensor(0.0, dtype=float32, device="cpu")  # read without waiting
                state["exp_avg"] = zeros_like(param)
                state["exp_avg_sq"] = zeros_like(param)
                if group["amsgrad"]:
                    state["max_exp_avg_sq"] = zeros_like(param)
            state["step"]._array += 1
            way = follow if group["differentiable"] else descend
            way(param, state, group)


def descend(param: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """One step on the arrays of a parameter and its state, in place."""
    assert param.grad is not None
    beta1, beta2 = group["betas"]
    lr, step = float(group["lr"]), state["step"].item()
    array, grad = param._array, param.grad._array
    xp = backend_of(array).xp
    will_change(param)
    if group["maximize"]:
        grad = scaled(xp, grad, -1)
    if group["weight_decay"] != 0:
        if group["decoupled_weight_decay"]:
            array *= 1 - lr * group["weight_decay"]
        else:
            grad = grad + scaled(xp, array, group["weight_decay"])
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
            rate=lr / (1 - beta1**step),
            root=math.sqrt(1 - beta2**step),
            eps=group["eps"],
        )
    changed(param)


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


def follow(param: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """The same step on tensors, recorded; the state's tensors are new ones, with their history."""
    grad, step = param.grad, state["step"].item()
    assert grad is not None
    (beta1, beta2), lr = group["betas"], group["lr"]
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"] != 0:
        if group["decoupled_weight_decay"]:
            param.mul_(1 - lr * group["weight_decay"])
        else:
            grad = grad + param * group["weight_decay"]
    average, square = state["exp_avg"], state["exp_avg_sq"]
    average = average + (grad - average) * (1 - beta1)
    square = square * beta2 + _squared(grad) * (1 - beta2)
    state["exp_avg"] = average
    state["exp_avg_sq"] = square
    if group["amsgrad"]:
        real = map(_as_real, (state["max_exp_avg_sq"], square))
        square = state["max_exp_avg_sq"] = _as_was(recorded.maximum(*real), square)
    root = _as_real(square).sqrt() / math.sqrt(1 - beta2**step) + group["eps"]
    _as_real(param).sub_(_as_real(average) / root * (lr / (1 - beta1**step)))


def _as_real(x: Tensor) -> Tensor:
    """A view of a complex tensor as pairs of reals; a real one is itself."""
    return recorded.view_as_real(x) if x.is_complex() else x


def _as_was(real: Tensor, like: Tensor) -> Tensor:
    """Pairs of reals as complex numbers again, where `like` is complex."""
    return recorded.view_as_complex(real) if like.is_complex() else real


def _squared(x: Tensor) -> Tensor:
    """The squares; of a complex tensor those of the real and the imaginary parts."""
    real = _as_real(x)
    return _as_was(real * real, x)
