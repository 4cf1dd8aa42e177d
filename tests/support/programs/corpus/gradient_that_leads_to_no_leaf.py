"""What was saved for operands that get no gradient may change."""

import cugrad as t  # or torch

v1 = t.tensor([[1.272]], dtype=t.float64, requires_grad=True)
with t.no_grad():
    v2 = v1.t()
v3 = (v2 * v2).sum()
v4 = t.nn.functional.cross_entropy(v2, t.zeros(1, dtype=t.int64))
with t.no_grad():
    v1.zero_()
v3.backward()
v4.backward()
