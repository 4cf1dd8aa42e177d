"""Within recompute() and budget() a part of a leaf could not be changed under no_grad."""

import cugrad as t  # or torch

v1 = t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64, requires_grad=True)
with t.no_grad():
    v1[0:1] *= 2.0
(v1 * v1).sum().backward()
