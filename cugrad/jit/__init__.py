"""torch.jit: functions and modules come back as they are.

`uncompiled.py` is all of it: begin there.
"""

from ..runtime.absent import explain
from .uncompiled import *
from .uncompiled import __all__ as __all__

explain(__name__)
