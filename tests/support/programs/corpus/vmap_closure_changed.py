"""The same, of what the function closes over."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v2 = t.tensor([3.0, 4.0], dtype=t.float64, requires_grad=True)
v3 = t.func.vmap(lambda r: r * v2)(v1)
with t.no_grad():
    v2.zero_()
v3.sum().backward()
