"""PyTorch's import path `torch.distributed.algorithms._checkpoint.checkpoint_wrapper`, for what
stands in a higher room."""

from ....nn.parallel.checkpoint_wrapper import (
    ActivationWrapper,
    CheckpointImpl,
    CheckpointWrapper,
    OffloadWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)

__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper",
    "apply_activation_checkpointing", "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip
