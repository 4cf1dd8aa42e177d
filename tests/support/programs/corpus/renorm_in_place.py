"""`renorm_` changed what it had saved."""

import cugrad as t  # or torch

v1 = t.tensor([[1.5, 0.5]], dtype=t.float64, requires_grad=True)
v2 = v1 * 2
v2.renorm_(2, 0, 0.4)
g1 = t.autograd.grad(v2.sum(), v1)
