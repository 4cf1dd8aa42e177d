"""Layers that standardise: a kernel or two forward, two backward for all gradients together.

Begin with `rows.py`, then `channels.py`; `vectors.py` is what both need. Only
`cugrad/backends/cupy/written` imports from here.
"""

from . import channels, rows
from .channels import track_moment

__all__ = ["channels", "rows", "track_moment"]
