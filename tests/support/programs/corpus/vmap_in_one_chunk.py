"""One chunk of a vmap was a view of its input, several are a copy."""

import cugrad as t  # or torch

v1 = t.tensor([[0.3, -0.7]], dtype=t.float64, requires_grad=True)
v2 = t.func.vmap(lambda r: r[:1], chunk_size=1)(v1)
with t.no_grad():
    v1.add_(1)
