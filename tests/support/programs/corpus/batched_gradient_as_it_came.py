"""A gradient in a batch that came through as it was given was a view of it."""

import cugrad as t  # or torch

v1 = t.tensor(-1.29, dtype=t.float64, requires_grad=True)
v2 = t.autograd.grad(v1, v1, v1.detach()[None] * 0.5, create_graph=True, is_grads_batched=True)[0]
v2.requires_grad_()
v2.backward()
