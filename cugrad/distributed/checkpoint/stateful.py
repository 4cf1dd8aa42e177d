"""PyTorch's path `torch.distributed.checkpoint.stateful`, of a higher room."""

from ...serialization.ranks.together import Stateful

__all__ = ["Stateful"]
