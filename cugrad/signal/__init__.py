"""torch.signal: its windows.

`windows.py` has them, those that `torch` itself has too. Rooms above import from it. Begin there.
"""

from . import windows

__all__ = ["windows"]
