"""A number of another dtype put at a mask."""

import cugrad as t  # or torch

v1 = t.tensor(-1.607, dtype=t.float32, requires_grad=True)
v2 = t.zeros(2, 2, dtype=t.float64)
v2.index_put_((t.tensor([[False, True], [False, True]]),), v1)
g1 = t.autograd.grad(v2.square().sum(), v1)
