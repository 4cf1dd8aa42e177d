"""The weights that a mean is over were given a gradient of the loss, at the third order."""

import cugrad as t  # or torch

v1 = t.tensor([[-0.428, 1.217]], dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.cross_entropy(v1, t.zeros(1, dtype=t.int64))
v3 = v2 * v2 * 0.5 + v2 * 0.3
g1 = t.autograd.grad(v3, [v1], create_graph=True)
v4 = (g1[0] * g1[0] * 0.5 + g1[0] * 0.3).sum()
g2 = t.autograd.grad(v4, [v1], create_graph=True)
v5 = (g2[0] * g2[0] * 0.5 + g2[0] * 0.3).sum()
g3 = t.autograd.grad(v5, [v1])
