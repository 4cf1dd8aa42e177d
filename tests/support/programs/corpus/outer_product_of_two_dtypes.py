"""An outer product added to one number of a wider dtype."""

import cugrad as t  # or torch

v1 = t.tensor(0.218, dtype=t.float64, requires_grad=True)
v2 = t.tensor([-1.5, 0.75], dtype=t.float32)
v3 = t.addr(v1, v2, v2)
g1 = t.autograd.grad(v3.square().sum(), v1)
