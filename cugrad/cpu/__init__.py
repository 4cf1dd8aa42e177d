"""torch.cpu: the host as a device of its own kind, of which there is one.

`host.py` has the functions and classes of `torch.cuda` that code for any device asks for; what they
wait for has always finished. Users import from `cugrad.cpu`, no other room does but `accelerator`.
Begin with `host.py`.
"""

from __future__ import annotations

from ..runtime.absent import explain as _explain
from .host import *

_explain(__name__)
