"""`linear` with a weight of one dim."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.linear(v1, v1)
g1 = t.autograd.grad(v2, v1)
