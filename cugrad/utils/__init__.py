"""torch.utils: what stands beside the library proper.

Most of it is `checkpoint.py`: begin there. `reentrant.py`, `selective.py` and `regions.py` are its
ways; `rerun.py`, `surroundings.py` and `op_log.py` run a function a second time in the surroundings
of the first and compare. No other room imports from here.
"""

from ..absent import explain
from . import checkpoint

__all__ = ["checkpoint"]


explain(__name__)
