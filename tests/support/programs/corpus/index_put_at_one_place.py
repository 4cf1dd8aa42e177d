"""An index without dims was all places."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0, 3.0], dtype=t.float64, requires_grad=True)
v2 = v1.index_put((t.tensor(1),), t.tensor(5.0, dtype=t.float64))
v3 = v1 * 2
v3.index_put_((t.tensor(0),), v2[0], accumulate=True)
g1 = t.autograd.grad((v2 * v3).sum(), [v1], create_graph=True)
