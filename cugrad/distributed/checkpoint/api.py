"""PyTorch's path `torch.distributed.checkpoint.api`, of a higher room."""

from ...serialization.ranks.together import (
    CheckpointException,
)

__all__ = [
    "CheckpointException",
]
