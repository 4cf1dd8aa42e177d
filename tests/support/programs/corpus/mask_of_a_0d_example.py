"""A mask without dims, of an example without dims."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0, 3.0], dtype=t.float64, requires_grad=True)
v2 = t.func.vmap(lambda r: r[t.tensor(True)])(v1)
v3 = t.func.vmap(lambda r: r.masked_select(t.tensor(True)))(v1)
g1 = t.autograd.grad((v2 * v3).sum(), v1)
