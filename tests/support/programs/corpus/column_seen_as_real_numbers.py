"""A column picked by an index array lay by the stride of its row: no other dtype could be seen."""

import cugrad as t  # or torch

v1 = t.tensor([[0.3 - 0.5j, 0.8 - 1.4j], [1.2 + 0.6j, -0.6 + 0.3j]], dtype=t.complex128)
v2 = v1.clone().requires_grad_()
v3 = v2[..., t.tensor([1])]
v4 = v3.view(t.float64)
g1 = t.autograd.grad(v4.square().sum(), v2)
