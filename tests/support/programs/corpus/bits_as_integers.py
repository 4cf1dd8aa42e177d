"""The bits of floats seen as integers were a view that follows changes, and required grad."""

import cugrad as t  # or torch

v1 = t.tensor([1.5, 2.5], dtype=t.float64, requires_grad=True)
v2 = v1 * 2
v3 = v2.view(t.int64)
v2.mul_(2)
v4 = v3 + 1
g1 = t.autograd.grad(v2.sum(), v1)
