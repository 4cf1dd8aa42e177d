"""PyTorch's import path `torch.cuda.amp` for autocast and GradScaler on CUDA."""

from ..amp.cuda import (
    GradScaler,
    amp_definitely_not_available,
    autocast,
    custom_bwd,
    custom_fwd,
)
from ..amp.grad_scaler import OptState as OptState  # of its module `grad_scaler` in PyTorch

__all__ = [
    "GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd",
]  # fmt: skip
