"""A view made under no_grad required gradients when its base no longer did."""

import cugrad as t  # or torch

v1 = t.tensor([1.272, 0.3], dtype=t.float64, requires_grad=True)
with t.no_grad():
    v2 = v1[:1]
    v3 = v2[0]
v4 = v1[1:]
v1.requires_grad_(False)
v5 = v2.requires_grad, v3.requires_grad, v4.requires_grad
v6 = v2 * 2
v1.requires_grad_()
v7 = v2 * 2
v8 = v1 * 2
with t.no_grad():
    v9 = v8[:1]
v8.detach_()
v10 = v9 * 2
