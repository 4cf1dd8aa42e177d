"""A leaf that had views could not be used once it was transposed in place."""

import cugrad as t  # or torch

v1 = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=t.float64, requires_grad=True)
v2 = v1 * 2
v3 = v1[0]
with t.no_grad():
    v1.t_()
v4 = (v1 * v1).sum()
g1 = t.autograd.grad(v4, v1)
