"""The same, where the view is what changes."""

import cugrad as t  # or torch

v1 = t.tensor([0.3, 0.4], dtype=t.float64, requires_grad=True)
v2 = v1 * v1
v3 = v2[0:1]
v3.mul_(2.0)
v4 = (v3 * v3).sum()
g1 = t.autograd.grad(v4, v1)
