"""What a hook is given, `torch.distributed.GradBucket`: it stands in a higher room."""

from ....nn.parallel.reducer import GradBucket

__all__ = ["GradBucket"]
