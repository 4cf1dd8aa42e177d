"""Values with more dims than what a mask picks."""

import cugrad as t  # or torch

v1 = t.tensor([[0.4, -0.2, 1.3]], dtype=t.float64, requires_grad=True)
v2 = t.zeros(2, 3, dtype=t.float64)
v2[t.tensor([[True, True, False], [False, True, False]])] = v1
g1 = t.autograd.grad(v2.square().sum(), v1)
