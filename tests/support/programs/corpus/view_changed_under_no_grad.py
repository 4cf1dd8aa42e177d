"""A view changed under no_grad kept its node, and the hook that was on it."""

import cugrad as t  # or torch

log = []
v2 = t.tensor([-0.2, 0.8, -1.2], dtype=t.float64, requires_grad=True)
v8 = v2.squeeze()
v8.register_hook(lambda g: log.append("h9"))
v9 = v8 + 1
with t.no_grad():
    v8.mul_(0.3)
v0 = v8.square().sum() + v9.sum()
g1 = t.autograd.grad(v0, [v2, v8], retain_graph=True, allow_unused=True)
