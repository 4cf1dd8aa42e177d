"""An observer once made a view's node younger than the change of its base: half a gradient."""

import cugrad as t  # or torch

v1 = t.tensor([0.3, 0.4], dtype=t.float64, requires_grad=True)
v2 = v1 * v1
v3 = v2[0:1]
v2.mul_(2.0)
v4 = (v2 * v2).sum() + (v3 * v3).sum()
g1 = t.autograd.grad(v4, v1, create_graph=True)
g2 = t.autograd.grad(g1[0].square().sum(), v1)
