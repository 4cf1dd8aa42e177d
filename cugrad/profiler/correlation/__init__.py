"""Which op launched what: ranges of a trace joined with kernels, forward with backward.

`joining.py` joins ops with their backward by sequence number: begin there. `attribution.py` finds
the range of a kernel, `loaded.py` makes events of a loaded trace, `table.py` writes the result. The
profiler's other rooms import from here.
"""

from __future__ import annotations
