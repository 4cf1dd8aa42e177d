"""PyTorch's path `torch.distributed.checkpoint.state_dict_saver`, of a higher room."""

from ...serialization.ranks.saving import (
    AsyncCheckpointerType,
    async_save,
    save,
)

__all__ = [
    "AsyncCheckpointerType",
    "async_save",
    "save",
]
