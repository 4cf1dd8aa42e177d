"""torch.distributed.nn: collectives with gradients.

`functional.py` is all of it: begin there. SyncBatchNorm imports from it.
"""

from ...runtime.absent import explain
from .functional import *
from .functional import __all__ as __all__

explain(__name__)
