"""`vmap` as a backend: arrays that hide a first dimension, over arrays of any other backend.

A row computes with a namespace `xp` and arrays; given these arrays and their namespace it computes
a whole batch, and no row needs a batching rule. arrays.py has the arrays, their levels (one for
each call of vmap) and their backend: begin reading there. rules.py says how families of array
functions run, functions.py how single ones do, index.py how indices are read and written, and
random.py what random numbers are inside vmap. Any room may import from arrays.py; which vmaps are
running, and among which other transforms, cugrad/autograd/transforms.py knows.
"""

from __future__ import annotations
