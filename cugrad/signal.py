"""torch.signal: its windows."""

from .functions.creation import windows

__all__ = ["windows"]
