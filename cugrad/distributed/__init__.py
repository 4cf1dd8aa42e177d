"""torch.distributed, which is not available: as in a PyTorch that was built without it.

`unavailable.py` is all of it: begin there.
"""

from .unavailable import *
from .unavailable import __all__ as __all__
from .unavailable import __getattr__ as __getattr__
