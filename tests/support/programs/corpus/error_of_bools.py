"""Losses that take a target of bools."""

import cugrad as t  # or torch

v1 = t.tensor([0.623, -0.2], dtype=t.float64, requires_grad=True)
v2 = v1 > 0
v3 = t.nn.functional.mse_loss(v1, v2) + t.nn.functional.smooth_l1_loss(v1, v2)
v4 = t.nn.functional.cosine_similarity(v1, v2, 0)
g1 = t.autograd.grad(v3 + v4, v1)
