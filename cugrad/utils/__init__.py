"""torch.utils: what stands beside the library proper."""

from . import checkpoint

__all__ = ["checkpoint"]
