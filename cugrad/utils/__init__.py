"""torch.utils: what stands beside the library proper.

Most of it is `checkpoint.py`: begin there. `reentrant.py`, `selective.py` and `regions.py` are its
ways. `rerun.py` runs a function a second time, in the surroundings of the first run that
`surroundings.py` has noted; `comparison.py` and `op_log.py` say how the two runs differ. No other
room imports from here.
"""

from ..absent import explain
from . import checkpoint

__all__ = ["checkpoint"]


explain(__name__)
