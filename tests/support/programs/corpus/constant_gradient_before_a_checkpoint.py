"""The gradient of relu has a graph in PyTorch, to a checkpoint that refuses it; it is constant."""

import cugrad as t  # or torch

v1 = t.tensor([0.7, 0.4], dtype=t.float64, requires_grad=True)
if True:

    def f2(v2):
        return v2.sin()

    v3 = t.utils.checkpoint.checkpoint(f2, v1, use_reentrant=True)
v4 = v3.relu()
v5 = t.autograd.grad(v4.sum(), [v3], create_graph=True, allow_unused=True)[0]
v0 = v1.sum() + v5.sum()
g1 = t.autograd.grad(v0, [v1], create_graph=True, allow_unused=True)
