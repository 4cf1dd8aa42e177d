"""torch.distributed.rpc: names that programs import; there are no remote calls.

`is_available()` says so, and all else refuses when it is called. `api.py` is all of it: begin
there.
"""

from ...runtime.absent import explain
from . import api as api
from .api import *
from .api import __all__ as __all__

explain(__name__)
