"""torch.accelerator: the device beside the host, whichever it is; here it is CUDA's, or none.

`devices.py` gives torch.cuda's functions the names that do not say CUDA: begin there. Users import
from `cugrad.accelerator`, and `Stream`, `Event` and `get_device_module` from `cugrad`; no other
room imports from here.
"""

from __future__ import annotations

from ..runtime.absent import explain as _explain
from .devices import *

_explain(__name__)
