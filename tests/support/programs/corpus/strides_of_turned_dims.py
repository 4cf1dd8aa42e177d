"""What `as_strided` gave of three dims in another order was a copy: a change of it was lost."""

import cugrad as t  # or torch

v1 = t.tensor([[[0.3, -0.7, 0.2]], [[1.2, 0.6, -0.4]]], dtype=t.float64).mT.clone()
v2 = t.arange(12.0, dtype=t.float64).reshape(2, 3, 2).mT.clone().requires_grad_()
v3 = v1.as_strided((2,), (1,))
v4 = v2 * 1
v5 = v4.as_strided((2,), (1,))
v3.add_(1)
v5.mul_(3)
g1 = t.autograd.grad(v4.square().sum(), v2)
