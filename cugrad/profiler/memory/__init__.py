"""Memory over time: a sample at the end of every op and node, and who holds what.

`timeline.py` is the observer that users have: begin there. `storages.py` follows each storage,
`picture.py` draws. `cugrad.profiler` gives its classes to users.
"""

from __future__ import annotations
