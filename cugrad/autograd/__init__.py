"""Automatic differentiation: `backward`, `grad`, and the namespace of `torch.autograd`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from . import anomaly_mode, forward_ad, functional, grad_mode, graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .differentiate import backward, grad
from .function import Function
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .inference import inference_mode
from .mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Function", "GradcheckError", "anomaly_mode", "backward", "detect_anomaly", "enable_grad",
    "forward_ad", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "is_grad_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """Deprecated: tensors are variables. Returns a tensor that shares the elements of `data`."""
    return data.detach().requires_grad_(requires_grad)


Variable = variable


if TYPE_CHECKING:  # profiler comes from cugrad.profiler

    def __getattr__(name: str) -> Any: ...
