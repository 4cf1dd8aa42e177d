"""A view of what was then detached in place lost its history."""

import cugrad as t  # or torch

v1 = t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64, requires_grad=True)
v2 = v1 * 3
v3 = v2[0]
v3.mul_(0.5)
v2.detach_()
g1 = t.autograd.grad(v3.square().sum(), v1)
