"""torch.utils: what stands beside the library proper.

Most of it is `checkpoint.py`: begin there. `reentrant.py`, `selective.py` and `regions.py` are its
ways, `again.py`, `states.py` and `traces.py` run a function a second time in the surroundings of
the first and compare. No other room imports from here.
"""

from ..absent import explain
from . import checkpoint

__all__ = ["checkpoint"]


explain(__name__)
