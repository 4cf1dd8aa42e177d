"""A part of a tensor that is given for a result of another shape keeps its memory."""

import cugrad as t  # or torch

v1 = t.tensor([0.4, -0.2, 1.3], dtype=t.float64, requires_grad=True)
v2 = v1[1:].view(2, 1)
with t.no_grad():
    t.mul(v1[:2] * 1, 2, out=v2)
g1 = t.autograd.grad(v1.square().sum(), v1)
