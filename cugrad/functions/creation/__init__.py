"""Functions that make tensors: from data, filled, in ranges, at random.

`factories.py` has the ones that all others are made of: begin there. It reads data by
`host_data.py`. `random.py` has the generators, and is public as `cugrad.random`. Rooms above import
a function from its file.
"""

from __future__ import annotations
