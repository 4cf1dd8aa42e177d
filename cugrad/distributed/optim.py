"""PyTorch's import path `torch.distributed.optim`, for what stands in a higher room."""

from ..optim.zero_redundancy import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
