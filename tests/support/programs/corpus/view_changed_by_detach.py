"""A view kept its node when another face of its storage had changed it."""

import cugrad as t  # or torch

v1 = t.tensor([[-0.4], [-1.4], [-0.6]], dtype=t.float64, requires_grad=True)
v2 = v1[1]
v3 = v2 * 2
t.autograd.graph.increment_version(v1.detach())
v0 = v3.sum() + v2.sum()
g1 = t.autograd.grad(v0, [v1, v2], retain_graph=True)
