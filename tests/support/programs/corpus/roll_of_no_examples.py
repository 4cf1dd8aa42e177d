"""Elements in a row, of which there were none, could not be counted."""

import cugrad as t  # or torch

v1 = t.zeros((0, 2), dtype=t.float64, requires_grad=True)
v2 = t.func.hessian(lambda x: x.roll(2).square().sum())(v1)
v3 = t.func.vmap(lambda x: t.outer(x, x))(v1)
