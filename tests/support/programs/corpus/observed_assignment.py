"""A profile took the region of an assignment, which has a shape, for an array."""

import cugrad as t  # or torch

v1 = t.tensor([[0.3, -0.7], [1.2, 0.6]], dtype=t.float64, requires_grad=True)
v2 = v1.reshape(-1) * 2
v2[...] = t.tensor([0.5, 0.1, 0.2, 0.4], dtype=t.float64)
g1 = t.autograd.grad((v2 * v1.reshape(-1)).sum(), v1, create_graph=True)
