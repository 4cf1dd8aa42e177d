"""The same, after a transform."""

import cugrad as t  # or torch

v1 = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=t.float64, requires_grad=True)
v2 = t.func.grad(lambda x: (x * x).sum())(v1)
with t.no_grad():
    v1.swapdims_(0, 1)
v3 = (v1 * v1).sum()
g1 = t.autograd.grad(v3, v1)
