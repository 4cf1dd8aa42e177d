"""torch.compiler: a program that compiles its model runs unchanged, uncompiled, and is told once.

`uncompiled.py` is all of it: begin there. `cugrad.compile` comes from here.
"""

from ..runtime.absent import explain
from .uncompiled import *
from .uncompiled import __all__ as __all__

explain(__name__)
