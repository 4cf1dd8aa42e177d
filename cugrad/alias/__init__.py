"""cugrad under the name `torch`: what `import cugrad.as_torch` switches on, and off again.

`switch.py` is the way in and out: begin there. `finder.py` serves imports of `torch` and what is
below it, `refusals.py` stands in for what is absent, and `command.py` runs a program. `paths` has
PyTorch's import paths for which there is no room here.
"""

import sys as _sys

from .switch import API as API
from .switch import install as install
from .switch import installed as installed

as_torch = _sys.modules[__name__]  # of which users know `installed`
