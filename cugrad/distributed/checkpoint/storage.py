"""PyTorch's path `torch.distributed.checkpoint.storage`, of a higher room."""

from ...serialization.ranks.storage import (
    StorageReader,
    StorageWriter,
    WriteResult,
)

__all__ = [
    "StorageReader",
    "StorageWriter",
    "WriteResult",
]
