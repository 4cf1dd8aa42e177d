"""Two vectors of different sizes, one of which has one element, are no vectors to multiply."""

import cugrad as t  # or torch

v1 = t.tensor([-1.2], dtype=t.float64, requires_grad=True)
v3 = t.arange(4, dtype=t.float64)
v5 = t.linalg.vecdot(v1, v3)
