"""Functions that make tensors: from data, filled, in ranges, at random, as windows of signals.

`factories.py` has the ones that all others are made of, and reads data: begin there. `random.py`
has the generators, and is public as `cugrad.random`; `windows.py` is `cugrad.signal.windows`.
Rooms above import a function from its file.
"""

from __future__ import annotations
