"""PyTorch's path `torch.distributed.checkpoint.state_dict_loader`, of a higher room."""

from ...serialization.ranks.loading import (
    load,
)

__all__ = [
    "load",
]
