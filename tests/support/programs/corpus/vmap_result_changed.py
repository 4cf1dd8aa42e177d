"""The same, of a result."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v2 = t.func.vmap(lambda r: r.exp())(v1 + 0)
with t.no_grad():
    v2.zero_()
v2.sum().backward()
