"""PyTorch's path `torch.distributed.checkpoint.format_utils`, of a higher room."""

from ...serialization.ranks.converting import dcp_to_torch_save, torch_save_to_dcp

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]
