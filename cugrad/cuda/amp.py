"""PyTorch's import path `torch.cuda.amp` for autocast and GradScaler on CUDA."""

from ..amp.cuda import GradScaler, autocast, custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
