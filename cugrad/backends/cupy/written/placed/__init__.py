"""Rows that move elements to where indices say, or beside each other.

`copies.py` has those that only copy, of any dtype; begin there. `sums.py` has dropout, gather,
scatter, and sums by indices. Only `cugrad/backends/cupy/written` imports from here.
"""

from . import copies, sums

__all__ = ["copies", "sums"]
