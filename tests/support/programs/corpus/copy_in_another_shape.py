"""A copy that no view would be of was refused."""

import cugrad as t  # or torch

v1 = t.tensor([[0.4, -0.2], [1.3, 0.7]], dtype=t.float64, requires_grad=True)
v2 = t.view_copy(v1.mT, (-1,))
g1 = t.autograd.grad(v2.square()[:2].sum(), v1)
