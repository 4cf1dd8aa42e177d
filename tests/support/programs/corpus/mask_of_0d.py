"""A mask's assignment in a 0-d tensor failed in backward."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v2 = v1.sum()
v2[v2.detach() > 0] = 0.5
v2.backward()
