"""PyTorch's path `torch.distributed.checkpoint.filesystem`, of a higher room."""

from ...serialization.ranks.filesystem import (
    FileSystemReader,
    FileSystemWriter,
)

__all__ = [
    "FileSystemReader",
    "FileSystemWriter",
]
