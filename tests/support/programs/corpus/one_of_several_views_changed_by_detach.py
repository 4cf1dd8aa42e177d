"""A view of several could be used after another face of its storage had changed it."""

import cugrad as t  # or torch

v1 = t.tensor([[-0.4], [-1.4], [-0.6]], dtype=t.float64, requires_grad=True)
v2 = v1.unbind(-2)[2]
v1.detach().add_(0.5)
v3 = v2 * 2
