"""torch.quasirandom: numbers that fill a cube more evenly than random ones.

`sobol.py` has the one sequence that PyTorch has: begin there. Users import it from here; no other
room does.
"""

from __future__ import annotations

from ..runtime.absent import explain as _explain
from .sobol import SobolEngine as SobolEngine

__all__ = ["SobolEngine"]

_explain(__name__)
