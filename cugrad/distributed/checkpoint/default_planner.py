"""PyTorch's path `torch.distributed.checkpoint.default_planner`, of a higher room."""

from ...serialization.ranks.converting import (
    EmptyStateDictLoadPlanner as _EmptyStateDictLoadPlanner,
)
from ...serialization.ranks.default_planner import DefaultLoadPlanner, DefaultSavePlanner

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner", "_EmptyStateDictLoadPlanner"]
