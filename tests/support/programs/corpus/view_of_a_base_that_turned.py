"""A hook of a view was called for views of the same base that were used after it was turned."""

import cugrad as t  # or torch

v1 = t.tensor([[[1.5, -1.7], [-1.3, 1.2]]], dtype=t.float64, requires_grad=True)
v3 = v1 * 2
v8 = v3.unsqueeze(0)
v8.register_hook(lambda g: g * 2)
v12 = v8.swapaxes(-2, 1)
v8.transpose_(1, 2)
v0 = v12.square().sum()
g1 = t.autograd.grad(v0, [v1], retain_graph=True, allow_unused=True)
