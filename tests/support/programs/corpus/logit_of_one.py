"""The second derivative of a clipped logit was nan at 0 and 1."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 0.0, 0.4, -2.0], dtype=t.float64, requires_grad=True)
v2 = v1.logit(0.1)
g1 = t.autograd.grad((v2 * v2).sum() + v1.square().sum(), v1, create_graph=True)
g2 = t.autograd.grad(g1[0].sum(), v1)
