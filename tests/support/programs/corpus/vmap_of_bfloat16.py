"""A number minus a bfloat16 example was not implemented."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.bfloat16, requires_grad=True)
v2 = t.func.vmap(lambda r: 1 - r)(v1)
v3 = t.func.vmap(lambda r: 1 / r)(v1)
(v2 + v3).sum().backward()
