"""What was saved and then detached in place could not go backward."""

import cugrad as t  # or torch

v1 = t.tensor([1.01], dtype=t.float64, requires_grad=True)
v2 = v1.view(1, 1, 1) * v1
v3 = v2.mT @ v2
v2.detach_()
g1 = t.autograd.grad(v3, [v1], create_graph=True)
