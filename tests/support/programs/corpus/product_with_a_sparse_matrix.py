"""A dense matrix times a sparse one was a view of a product that is shown nowhere."""

import cugrad as t  # or torch

v1 = t.tensor([[0.4, 1.1], [1.7, -0.5]], dtype=t.float64, requires_grad=True)
v4 = v1 @ v1.to_sparse()
v5 = v4 * 2
v4.detach_()
g1 = t.autograd.grad((v5 * v5).sum(), [v1], create_graph=True)
