"""Pooling as functions of torch.nn.functional.

`windows.py` has maxima, averages and powers in windows of a given size, and what undoes maxima:
begin there. `adaptive.py` has those whose result has a given size. Layers import from here.
"""

from __future__ import annotations

from .adaptive import *
from .windows import *
