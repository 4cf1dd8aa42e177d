"""A base whose shape was changed in place became a view, and its views did not lead through it."""

import cugrad as t  # or torch

v1 = t.tensor([[0.4, -0.2, 0.9]], dtype=t.float64, requires_grad=True)
v2 = v1 * 2
v3 = v2.squeeze(0)
v2.squeeze_()
v0 = v3.square().sum() + v2.sum()
g1 = t.autograd.grad(v0, [v2, v1], retain_graph=True, allow_unused=True)
v2.detach_()
