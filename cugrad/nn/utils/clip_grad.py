"""Gradients of a model taken together: their norm, and gradients that are clipped by it.

`foreach` is PyTorch's way to compute the same. There is one way here, which all its values give; on
CUDA it is a launch for the norm of all gradients, and one that scales them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

from ... import linalg
from ...autograd import no_grad
from ...dtypes import promote_types
from ...functions.creation.factories import tensor
from ...functions.maths.arithmetic import clamp
from ...functions.maths.lists import (
    as_one_kernel,
    clip_factor,
    norm_together,
    scale_together,
)
from ...functions.maths.together import changed_together, left_by
from ...functions.shapes.copies import stack
from ...tensor import Tensor

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "get_total_norm",
]  # fmt: skip

Tensors = Tensor | Iterable[Tensor]


def several(name: str, tensors: Tensors) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        return [tensors]
    several = list(tensors)
    for each in several:
        if not isinstance(each, Tensor):
            raise TypeError(
                f"{name}: got {type(each).__name__} among the parameters, want Tensors, as of "
                "model.parameters()"
            )
    if not several and isinstance(tensors, Iterator):
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3
        )
    return several


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


@no_grad()
def _norm_of(
    tensors: list[Tensor], norm_type: float, error_if_nonfinite: bool,
    max_norm: float | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The norm, and the factor that makes it `max_norm` at most, if that came along."""
    gradients, tensors = tensors, [t for t in tensors if t.numel()]
    if not tensors:
        return stack([linalg.vector_norm(t) for t in gradients] or [tensor(0.0)]).sum(), None
    norm_type = float(norm_type)
    total, factor = norm_together(tensors, norm_type, max_norm) or (None, None)
    if total is None:

        def norm() -> tuple[Tensor, Tensor | None]:
            norms = [_one_norm(t, norm_type).to(tensors[0].device) for t in tensors]
            total = linalg.vector_norm(stack(norms), norm_type)
            whole = max_norm is not None and len(gradients) == len(tensors)
            return total, _factor(max_norm, total) if whole else None

        total, factor = as_one_kernel("norm_of_lists", tensors, norm)
    if len(gradients) > len(tensors):  # dtypes count without elements, too
        total = total.to(reduce(promote_types, [t.dtype.to_real() for t in gradients]))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total, factor


def _one_norm(tensor: Any, norm_type: float) -> Tensor:
    """The norm of a tensor; of a gradient that is elsewhere, perhaps from before it left."""

    def norm(t: Tensor) -> Tensor:
        return linalg.vector_norm(t, norm_type)

    return tensor._told(("norm", norm_type), norm) if tensor._may_be_away else norm(tensor)


class _Times:
    """Multiplies tensors in place by one number, wherever they are. On the host, that which is 1 is
    known to be, and spares it the work.
    """

    def __init__(self, factor: Tensor) -> None:
        self.factor = factor
        self.on_host: Tensor | None = None

    def __call__(self, tensor: Tensor) -> None:
        if tensor.device.type != "cpu" or self.factor.device.type == "cpu":
            self._multiply(tensor, self.factor.to(tensor.device))
            return
        if self.on_host is None:
            self.on_host = self.factor.cpu()
        if self.on_host.item() != 1.0:
            self._multiply(tensor, self.on_host)

    @staticmethod
    def _multiply(tensor: Tensor, factor: Tensor) -> None:
        """By all digits of the factor, as where gradients are scaled together: `mul_` would round
        it to a tensor's half precision first.
        """
        if tensor.element_size() < factor.element_size() and tensor.is_floating_point():
            tensor.copy_(tensor.to(factor.dtype) * factor)
        else:
            tensor.mul_(factor)


@no_grad()
def _scale(
    gradients: list[Tensor], max_norm: float, total_norm: Tensor, factor: Tensor | None = None
) -> None:
    if factor is None:
        factor = _factor(max_norm, total_norm)
    times = _Times(factor)
    for gradient in scale_together(gradients, factor):
        _change(gradient, times)


def _factor(max_norm: Any, total: Tensor) -> Tensor:
    """What gradients are multiplied by; no look at the norm: no waiting."""
    factor = None if total._requires_grad else clip_factor(float(max_norm), total)
    return factor if factor is not None else clamp(float(max_norm) / (total + 1e-6), max=1.0)


def _change(gradient: Any, change: Callable[[Tensor], object]) -> None:
    """Changes a gradient in place; one that is elsewhere where it is used next."""
    gradient._change_later(change) if gradient._may_be_away else change(gradient)


def get_total_norm(
    tensors: Tensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of tensors, as if they were one vector; the device is not waited for.

    RuntimeError with `error_if_nonfinite`, which waits, for a norm that is nan or infinite.

    >>> import cugrad as torch
    >>> torch.nn.utils.get_total_norm([torch.tensor([3.]), torch.tensor([[4.]])])
    tensor(5.)
    """
    return _norm_of(several("get_total_norm", tensors), norm_type, error_if_nonfinite)[0]


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients, in place, as `clip_grad_norm_` does, by a norm that is known.

    >>> import cugrad as torch
    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3., 4.])
    >>> torch.nn.utils.clip_grads_with_norm_([w], 1.0, torch.tensor(10.0))
    >>> w.grad
    tensor([0.3000, 0.4000])
    """
    _scale(_gradients(several("clip_grads_with_norm_", parameters)), max_norm, total_norm)


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales the gradients in place so that their norm, taken together, is `max_norm` at most.

    The norm that they had; the device is not waited for. RuntimeError with `error_if_nonfinite`,
    which waits, for a norm that is nan or infinite. Source: Pascanu et al. 2013,
    https://arxiv.org/abs/1211.5063, in PyTorch's form: by max_norm / (norm + 1e-6).

    >>> import cugrad as torch
    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3., 4.])
    >>> torch.nn.utils.clip_grad_norm_([w], max_norm=1.0), w.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    gradients = _gradients(several("clip_grad_norm_", parameters))
    total, factor = _norm_of(gradients, norm_type, error_if_nonfinite, float(max_norm))
    _scale(gradients, max_norm, total, factor)
    return total


def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The name that `clip_grad_norm_` had: FutureWarning."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clips each element of the gradients, in place, to [-clip_value, clip_value].

    >>> import cugrad as torch
    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3., -0.5])
    >>> torch.nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([ 1.0000, -0.5000])
    """
    most = float(clip_value)

    def take(some: list[Any]) -> list[int]:
        return changed_together("clamp", clamp, [some], [(-most, most)] * len(some))

    for gradient in left_by(take, _gradients(several("clip_grad_value_", parameters))):
        _change(gradient, lambda t: t.clamp_(-most, most))
