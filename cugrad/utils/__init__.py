"""torch.utils: what stands beside the library proper."""

from ..absent import explain
from . import checkpoint

__all__ = ["checkpoint"]


explain(__name__)
