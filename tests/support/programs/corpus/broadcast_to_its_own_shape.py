"""`broadcast_tensors` of one shape made views: gradients of others."""

import cugrad as t  # or torch

v1 = t.tensor(-1.531, dtype=t.float64, requires_grad=True)
v2 = t.broadcast_tensors(v1, v1)[0]
g1 = t.autograd.grad(v1 * v1 + v2 * v2, v2)
