"""A weight without dims had to be of the dtype of the others."""

import cugrad as t  # or torch

v1 = t.tensor([0.4, -0.2], dtype=t.float32, requires_grad=True)
v2 = t.lerp(v1, v1 * 2, t.tensor(0.3, dtype=t.float64))
v3 = t.lerp(v1.detach(), v1.detach() * 2, t.tensor(0.3 + 0.2j, dtype=t.complex64))
g1 = t.autograd.grad(v2.square().sum(), v1)
